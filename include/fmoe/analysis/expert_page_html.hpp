// SPDX-License-Identifier: MIT
// The page of expert_page.hpp, which puts its data in the place of {{data}}.
#pragma once

#include <string_view>

namespace fmoe::detail {

inline constexpr std::string_view expert_page_html = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Experts</title>
<style>
  :root {
    color-scheme: light dark;
    --paper: #fcfbf9; --side: #f5f3ef; --ink: #24221f; --quiet: #6d6860; --line: #e3dfd7; --bar: #cbc5ba;
    --heat: 38 92% 50%; --accent: #a85b00;
    --text: Charter, "Bitstream Charter", "Iowan Old Style", Cambria, Georgia, serif;
  }
  @media (prefers-color-scheme: dark) {
    :root {
      --paper: #17181a; --side: #1d1e21; --ink: #dedbd5; --quiet: #98938a; --line: #303135; --bar: #4b4b4e;
      --heat: 36 85% 48%; --accent: #e8a33d;
    }
  }
  * { box-sizing: border-box; }
  body {
    margin: 0; display: grid; grid-template-columns: clamp(20rem, 32vw, 25rem) minmax(0, 1fr);
    background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  }
  a { color: inherit; text-decoration: none; }
  h1, h2, p, ol, dl, dd, figure { margin: 0; padding: 0; }
  h1 { font-size: 1.05rem; font-weight: 600; }
  h2 { font-size: 1.6rem; font-weight: 600; letter-spacing: -.01em; line-height: 1.2; }
  button, input { font: inherit; color: inherit; background: none; border: 0; padding: 0; }
  button, .context span, .context mark { cursor: pointer; }
  :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
  .quiet { color: var(--quiet); font-size: .85rem; }

  aside { position: sticky; top: 0; height: 100dvh; display: flex; flex-direction: column; background: var(--side);
    border-right: 1px solid var(--line); }
  .head { padding: 1.25rem 1.25rem .75rem; display: grid; gap: .5rem; }
  #search { width: 100%; padding: .45rem .7rem; border: 1px solid var(--line); border-radius: 6px; background: var(--paper); }
  .row { display: grid; grid-template-columns: 3.2rem minmax(0, 1fr) 3.9rem 4.4rem; gap: .5rem; padding: .3rem 1.25rem;
    font-variant-numeric: tabular-nums; content-visibility: auto; contain-intrinsic-height: 1.95rem; }
  .row > :nth-child(n + 3) { text-align: right; }
  .row > :first-child { color: var(--quiet); }
  .sort { border-bottom: 1px solid var(--line); padding-block: .35rem; }
  .sort > * { text-align: left; font-size: .8rem; color: var(--quiet); white-space: nowrap; }
  .sort [data-order]::after { content: " ↓"; }
  .sort [data-order="1"]::after { content: " ↑"; }
  #list { overflow-y: auto; flex: 1; padding-bottom: 1rem; }
  #list .word { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
  #list a:hover { background: color-mix(in srgb, var(--ink) 4%, transparent); }
  #list a[aria-current] { background: color-mix(in srgb, var(--ink) 9%, transparent); box-shadow: inset 3px 0 var(--accent); }

  main { padding: 2rem clamp(1.1rem, 4vw, 3.5rem) 3rem; max-width: 62rem; }
  .back { display: none; color: var(--accent); }
  .summary { display: grid; grid-template-columns: minmax(0, 1fr) 20rem; gap: 1.5rem 3rem; align-items: end;
    padding-bottom: 1.5rem; border-bottom: 1px solid var(--line); }
  #words { display: flex; flex-wrap: wrap; gap: .1rem .9rem; margin-top: .5rem; font: 1.05rem/1.6 var(--text); }
  #words small { color: var(--quiet); font: .75rem system-ui, sans-serif; }
  dl { display: grid; grid-template-columns: repeat(2, minmax(0, max-content)); gap: .75rem clamp(1.25rem, 3vw, 2.5rem);
    margin-top: 1.25rem; }
  dl div { display: flex; flex-direction: column-reverse; }
  dt, figcaption { color: var(--quiet); font-size: .8rem; }
  sub { font-size: .75em; line-height: 0; }
  dd { font-size: 1.2rem; font-variant-numeric: tabular-nums; }
  svg { display: block; width: 100%; height: auto; overflow: visible; font-size: 10px; }
  svg rect { fill: var(--bar); }
  svg .chosen { fill: var(--accent); }
  svg line { stroke: var(--quiet); stroke-dasharray: 2 3; }
  svg text { fill: var(--quiet); text-anchor: middle; }

  #tokens { list-style: none; }
  #tokens li { display: grid; grid-template-columns: 2.5rem minmax(0, 1fr); gap: 1.25rem; padding: .95rem 0;
    border-bottom: 1px solid var(--line); }
  .value { font-variant-numeric: tabular-nums; line-height: 1.75rem; }
  .context { font: 1.08rem/1.65 var(--text); overflow-wrap: anywhere; text-wrap: pretty; }
  .context span:hover, #words button:hover { text-decoration: underline dotted; text-underline-offset: .2em; }
  mark { color: inherit; padding: .06em .18em; margin: 0 -.04em; border-radius: 3px;
    background: hsl(var(--heat) / calc(.1 + .55 * var(--part))); }
  mark.here { font-weight: 600; box-shadow: 0 0 0 1.5px var(--accent); }
  footer { padding-top: 1.25rem; max-width: 46rem; }

  @media (max-width: 1000px) { .summary { grid-template-columns: minmax(0, 1fr); } figure { max-width: 24rem; } }
  @media (max-width: 760px) {
    body { display: block; }
    body.chosen aside, body:not(.chosen) main { display: none; }
    aside { border: 0; }
    body:not(.chosen) #list a { background: none; box-shadow: none; }
    main { padding-top: 1rem; }
    .back { display: inline-block; padding: .3rem 0 .8rem; }
    .row { padding-block: .5rem; contain-intrinsic-height: 2.4rem; }
    #search { font-size: 16px; }  /* a smaller one is zoomed at by iOS */
    #tokens li { grid-template-columns: minmax(0, 1fr); gap: .1rem; }
    .value { line-height: 1.4; color: var(--quiet); font-size: .85rem; }
  }
</style>

<aside>
  <div class="head">
    <h1 id="title"></h1>
    <p class="quiet" id="found"></p>
    <input id="search" type="search" placeholder="A word, or an expert’s number" aria-label="Find experts by word or number"
           autocomplete="off" spellcheck="false">
    <p class="quiet" id="matches" role="status"></p>
  </div>
  <div class="row sort" id="sort">
    <button data-by="expert">expert</button><button data-by="word">top word</button>
    <button data-by="frequency">active</button><button data-by="norm">norm</button>
  </div>
  <nav id="list" aria-label="Experts"></nav>
</aside>
<main>
  <a class="back" href="#">‹ All experts</a>
  <section class="summary">
    <div><h2 id="name"></h2><div id="words"></div><dl id="numbers"></dl></div>
    <figure>
      <svg id="histogram" viewBox="0 0 320 112" aria-hidden="true"></svg>
      <figcaption>All experts by log<sub>10</sub> frequency; this one at <span id="position"></span></figcaption>
    </figure>
  </section>
  <ol id="tokens"></ol>
  <footer class="quiet">An expert adds a vector a c ∗ zD to a token’s output. The number at a token is that vector’s length; the
    sum over all tokens is the expert’s contribution norm. Other tokens that the expert is strong on are tinted, too. A click on
    a word finds its experts; ↑ and ↓ go through the list, / goes to the search.</footer>
</main>

<script type="application/json" id="data">{{data}}</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);
const number = (x, digits = 0) => x.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
const percent = x => (100 * x).toLocaleString("en", {minimumSignificantDigits: 2, maximumSignificantDigits: 2}) + "%";
const norm_digits = Math.max(0, 4 - Math.ceil(Math.log10(Math.max(...data.experts.map(expert => expert.norm)))));

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const is_phone = matchMedia("(max-width: 760px)");

const experts = data.experts.map((expert, rank) => {
  const times = new Map();  // of each word, that of the strongest token first
  for (const [, window, place] of expert.tokens) {
    const text = data.windows[window].words[place];
    times.set(text, (times.get(text) ?? 0) + 1);
  }
  const often = Math.max(...times.values()), word = [...times.keys()].find(text => times.get(text) === often);
  const cell = make("span", {className: "word"});
  const row = make("a", {className: "row", href: "#" + expert.expert}, make("span", {}, String(expert.expert)), cell,
                   make("span", {}, percent(expert.frequency)), make("span", {}, number(expert.norm, norm_digits)));
  return {...expert, rank, times, word, cell, row};
});
const by_number = new Map(experts.map(e => [String(e.expert), e]));
let listed = experts, shown, order = {by: "norm", sign: -1};

function list() {
  const wanted = at("search").value.trim().toLowerCase(), matches = text => text.toLowerCase().startsWith(wanted);
  const compare = (a, b) => typeof a === "string" ? a.localeCompare(b) : a - b;
  listed = experts.filter(e => [...e.times.keys(), String(e.expert)].some(matches))
                  .sort((a, b) => order.sign * compare(a[order.by], b[order.by]) || a.rank - b.rank);
  for (const e of listed) {
    const others = [...e.times.keys()].filter(text => text !== e.word && matches(text)).slice(0, 6);
    e.cell.replaceChildren(e.word, make("span", {className: "quiet"}, "  " + others.join(" ")));
  }
  at("list").replaceChildren(...listed.map(e => e.row));
  at("list").scrollTop = 0;
  at("matches").textContent = wanted && number(listed.length) + (listed.length === 1 ? " expert" : " experts");
  for (const button of at("sort").children)
    if (button.dataset.by === order.by) button.dataset.order = order.sign;
    else delete button.dataset.order;
}

// Whether a space stands before word i: pieces of punctuation come apart from what they belong to.
function spaced(words, i) {
  const before = words[i - 1], here = words[i], ending = /^(s|t|d|m|re|ve|ll)$/;
  if (/^[.,;:!?)\]}%]$/.test(here) || /^[(\[{]$/.test(before) || /^[-_/]$/.test(here) || /^[-_/]$/.test(before)) return false;
  if (here === "'") return !ending.test(words[i + 1]);
  if (before === "'") return !ending.test(here);
  return !(before === ":" && words[i - 2] === ":");
}

function context(window, place, values, largest) {
  const words = window.words, first = Math.max(0, place - 20), end = Math.min(words.length, place + 21);
  const line = make("p", {className: "context"}, first > 0 ? "… " : "");
  for (let i = first; i < end; ++i) {
    if (i > first && spaced(words, i)) line.append(" ");
    const word = make(values.has(i) ? "mark" : "span", {className: i === place ? "here" : ""}, words[i]);
    if (values.has(i)) word.style.setProperty("--part", values.get(i) / largest);
    line.append(word);
  }
  line.append(end < words.length ? " …" : "");
  return line;
}

function tokens(expert) {
  const windows = new Map();  // the values of its words; of a word's pieces the greatest
  const whole = expert.tokens.filter(([, window, place, value]) => {
    const values = windows.get(window) ?? windows.set(window, new Map()).get(window);
    return !values.has(place) && values.set(place, value);
  });
  return whole.map(([, window, place, value]) => {
    const {document: name, licence} = data.windows[window];
    return make("li", {}, make("span", {className: "value"}, number(value, norm_digits + 1)),
                make("div", {}, context(data.windows[window], place, windows.get(window), whole[0][3]),
                     make("p", {className: "quiet"}, `${name} · ${licence}`)));
  });
}

function draw(name, attributes, text = "") {
  const shape = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) shape.setAttribute(key, attributes[key]);
  shape.textContent = text;
  return shape;
}

function histogram(expert) {
  const step = 0.25, lowest = Math.floor(-Math.log10(data.tokens) / step), bars = Array(-lowest + 1).fill(0);
  const bar_of = part => Math.min(Math.floor(Math.log10(part) / step) - lowest, bars.length - 1);
  let never = 0;
  for (const count of data.counts)
    if (count === 0) ++never;
    else ++bars[bar_of(count / data.tokens)];
  const top = Math.max(never, ...bars), left = 44, width = (320 - left) / bars.length, base = 92;
  const x_of = part => left + (Math.log10(part) / step - lowest) * width;
  const bar = (x, count, is_chosen) => draw("rect", {x, y: base - 80 * count / top, width: width - 2, height: 80 * count / top,
                                                     class: is_chosen ? "chosen" : ""});
  const marks = [draw("text", {x: width / 2, y: 106}, "never"), draw("line", {x1: x_of(0.05), x2: x_of(0.05), y1: 4, y2: base}),
                 draw("text", {x: x_of(0.05), y: 0}, "5%")];
  for (let part = 1; part * data.tokens >= 1; part /= 10)
    marks.push(draw("text", {x: x_of(part), y: 106}, number(100 * part, Math.max(0, -Math.round(Math.log10(100 * part)))) + "%"));
  const filled = bars.map((count, i) => bar(left + i * width, count, i === bar_of(expert.frequency)));
  at("histogram").replaceChildren(bar(0, never), ...filled, ...marks);
  at("position").textContent = number(Math.log10(expert.frequency), 2).replace("-", "−");
}

function show() {
  const chosen = by_number.get(location.hash.slice(1));
  document.body.classList.toggle("chosen", chosen !== undefined);
  const expert = chosen ?? shown ?? experts[0];
  if (expert === undefined) return;
  shown?.row.removeAttribute("aria-current");
  shown = expert;
  expert.row.setAttribute("aria-current", "true");
  expert.row.scrollIntoView({block: "nearest"});
  at("name").textContent = "Expert " + expert.expert;
  at("words").replaceChildren(...[...expert.times].slice(0, 12).map(
    ([text, times]) => make("button", {value: text}, text, times > 1 ? make("small", {}, " ×" + times) : "")));
  const active = data.counts[expert.expert];
  at("numbers").replaceChildren(...[
    [percent(expert.frequency), `active on ${number(active)} of ${number(data.tokens)} tokens`],
    [number(expert.norm, norm_digits), "contribution norm"],
    [number(expert.norm / active, norm_digits + 1), "of it per active token"],
    ["#" + number(expert.rank + 1), `of ${number(experts.length)} by norm`],
  ].map(([value, what]) => make("div", {}, make("dt", {}, what), make("dd", {}, value))));
  histogram(expert);
  at("tokens").replaceChildren(...tokens(expert));
  scrollTo(0, 0);
}

function find(word) {
  at("search").value = word;
  list();
  if (is_phone.matches) location.hash = "";
}

at("title").textContent = `${data.model.split("/").pop()}, layer ${data.layer}`;
at("found").textContent =
  `${number(experts.length)} of ${number(data.counts.length)} experts are active on under ${percent(data.most)} of ${number(data.tokens)} tokens.`;
at("search").addEventListener("input", list);
at("sort").addEventListener("click", ({target}) => {
  const by = target.dataset.by;
  if (by) order = {by, sign: by === order.by ? -order.sign : by === "expert" || by === "word" ? 1 : -1}, list();
});
at("words").addEventListener("click", ({target}) => target.closest("button") && find(target.closest("button").value));
at("tokens").addEventListener("click", ({target}) => target.matches(".context > *") && find(target.textContent));
addEventListener("hashchange", show);
addEventListener("keydown", event => {
  const step = {ArrowUp: -1, ArrowDown: 1}[event.key];
  if (event.key === "/" && event.target !== at("search")) event.preventDefault(), at("search").focus();
  if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const next = listed[Math.max(0, Math.min(listed.length - 1, listed.indexOf(shown) + step))];
  if (next) location.replace("#" + next.expert);
});
list();
show();
</script>
</html>
)html";

}  // namespace fmoe::detail
