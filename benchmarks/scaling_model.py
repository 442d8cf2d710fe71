#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How an MxD over ranks scales, on paper: the schedule of docs/distributed.md on two clusters.

benchmarks/scaling_model.py            draws docs/images/scaling_ranks.svg and bytes_ranks.svg
benchmarks/scaling_model.py --table    prints the bytes and calls that the model counts, which a test compares with the library's plans
benchmarks/scaling_model.py --check FILE
    compares the model with the tables in FILE, which ranks_on_threads or ranks_on_mpi has printed

The layer is GPT-2's MxD: I = O = 768, H = 3,072, K = 32, and N experts, which are cut over P ranks. T tokens are all tokens of a call.
"""
import dataclasses
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))

I = O = 768
H = 3072
K = 32
NUMBER = 4  # bytes of a number that travels
EXPERTS = [21_490, 2**18, 2**20, 2**22, 2**24]
TOKENS_A_NODE = 512


@dataclasses.dataclass
class Cluster:
    name: str
    flops: float  # of a node, a multiply-add counts 2: a part of the peak
    memory: float  # bytes a second that a node reads
    room: float  # bytes of a node
    weight: float  # bytes of a number of the weights
    network: float  # bytes a second that a node receives
    latency: float  # seconds of a message
    gap: float  # seconds between two messages of a node


CLUSTERS = [
    # ARCHER2 hardware, docs.archer2.ac.uk/user-guide/hardware: 5,860 nodes of two EPYC 7742 (64 cores of 2.25 GHz, AVX2: 32 operations
    # of float a cycle), each with 204.8 GB/s and 128 GB, and two ports of 100 Gb/s. That 0.8 of the peak is reached, as on one core of
    # Zen 4 (docs/performance.md), latency and gap are assumed.
    Cluster("ARCHER2, a node of two EPYC 7742", 0.8 * 128 * 2.25e9 * 32, 2 * 204.8e9, 256e9, 4, 25e9, 2e-6, 0.2e-6),
    # NVIDIA's Eos: 4,608 H100 SXM, each with a port of 400 Gb/s (NVIDIA DGX SuperPOD reference architecture); 989 TFLOP/s of bf16, 3.35
    # TB/s and 80 GB each (NVIDIA H100 data sheet). That half of the peak is reached, latency and gap are assumed: no GPU has run fmoe
    # over ranks. NVLink, which joins eight of them, is left out.
    Cluster("Eos, a GPU H100 SXM", 0.5 * 989e12, 3.35e12, 80e9, 2, 50e9, 5e-6, 0.5e-6),
]


# The network that the library plans for: bytes a second, seconds of a call, and tokens (network_costs).
PLANNED = 25e9, 5e-6, 512


def reached(ranks, experts):
    """The share of tokens that select an expert of a rank, under even load."""
    return 1 - math.prod(max(0, 1 - experts / ranks / (experts - i)) for i in range(K))


def routes(ranks, experts):
    """Whether each rank makes sums for the tokens alone that selected its experts: two calls more, which tell the owners these tokens."""
    saved = NUMBER * (O * (1 - reached(ranks, experts)) - reached(ranks, experts)) * (ranks - 1) / ranks
    network, latency, tokens = PLANNED
    return tokens * saved / network > 2 * latency


def first_best(ranks):
    """How many of its best a rank gives at first: all of them are kept for one token in 1,000 on average."""
    some, first = 0, K
    while first > 0:
        some += math.comb(K, first) * (1 - 1 / ranks) ** (K - first) / ranks**first
        if ranks * some > 1 / 1000:
            break
        first -= 1
    return min(first + 1, K)


def tells_bounds(ranks, tokens, experts):
    """Whether ranks tell each other bounds before they compute scores in full: two calls more, where parts are screened and rows are
    neither few nor many."""
    return 64 <= tokens <= 4096 and experts // ranks >= max(1024, 64 * K)


def bytes_a_token(ranks, experts=EXPERTS[0], tokens=None):
    """What a rank receives: x, of the selection its candidates and the last one that is kept, their bounds, and the sums."""
    tokens = tokens or TOKENS_A_NODE * ranks
    others = (ranks - 1) / ranks
    sums = reached(ranks, experts) * (O + 1) if routes(ranks, experts) else O
    numbers = 3 if tells_bounds(ranks, tokens, experts) else 2  # of a candidate: its score, place and bound
    return NUMBER * (I + numbers * (first_best(ranks) + 1) + sums) * others


# all_gather of the numbers of tokens, of x and of the last candidates; all_to_all of the candidates; reduce_scatter, which fmoe makes
# of one message from each rank to each, as all_to_all. Where tokens are routed, two all_to_all more; for bounds one of each.
def gathers(ranks, tokens, experts):
    return 4 if tells_bounds(ranks, tokens, experts) else 3


def exchanges(ranks, tokens, experts):
    return (4 if routes(ranks, experts) else 2) + tells_bounds(ranks, tokens, experts)


def calls(ranks, tokens, experts):
    return gathers(ranks, tokens, experts) + exchanges(ranks, tokens, experts)


def exchanging(c, ranks, tokens, experts):
    if ranks == 1:
        return 0
    messages = exchanges(ranks, tokens, experts) * (c.latency + (ranks - 1) * c.gap)
    latency = gathers(ranks, tokens, experts) * math.ceil(math.log2(ranks)) * c.latency + messages
    return latency + (tokens * bytes_a_token(ranks, experts, tokens) + 24 * (ranks - 1)) / c.network


def computing(c, ranks, tokens, experts):
    own = math.ceil(tokens / ranks)
    flops = 2 * (tokens * (I * experts + K * O) / ranks + own * (I * H + H * O))
    weights = c.weight * (I * experts / ranks + min(tokens * K, experts) * O / ranks + (I + O) * H)
    return max(flops / c.flops, weights / c.memory)


def seconds(c, ranks, tokens, experts):
    return computing(c, ranks, tokens, experts) + exchanging(c, ranks, tokens, experts)


def fits(c, ranks, experts):
    return c.weight * ((I + O) * experts / ranks + (I + O) * H) <= c.room


def throughput(c, ranks, experts):
    tokens = TOKENS_A_NODE * ranks
    return tokens / seconds(c, ranks, tokens, experts) if fits(c, ranks, experts) else math.nan


def best_throughput(c, nodes, experts):
    """The nodes work in groups, each of which has all experts and tokens of its own."""
    sizes = [2**k for k in range(nodes.bit_length()) if fits(c, 2**k, experts)]
    return max((nodes // size * throughput(c, size, experts), size) for size in sizes) if sizes else (math.nan, 0)


# What other schemes move for the same layer, received by a rank for each token of all ranks.
def bytes_of_tensor_parallelism(ranks):
    """Megatron's: all ranks have all tokens, and an all_reduce of the output, which moves it twice."""
    return 2 * NUMBER * O * (ranks - 1) / ranks


def bytes_of_expert_parallelism(ranks):
    """DeepSpeed-MoE's: each token goes to its K experts and comes back from each, by two all_to_all, with no room left empty."""
    return NUMBER * K * (I + O) * (ranks - 1) / ranks**2


def print_table():
    print("| experts | ranks | bytes a token | calls |\n|---|---|---|---|")
    for experts, ranks in [(21_490, 2), (21_490, 4), (21_490, 16), (21_490, 32), (21_490, 64), (2**18, 64), (2**20, 512), (2**22, 4096), (2**24, 4096)]:
        print(f"| {experts:,} | {ranks:,} | {bytes_a_token(ranks, experts):,.1f} | {calls(ranks, TOKENS_A_NODE * ranks, experts)} |")


def check(text):
    """The model with the constants that the program measured: a rank computes its part of what one process computes."""
    print("| ranks | tokens | ms of a rank, measured | by the model | ratio |\n|---|---|---|---|---|")
    latency = network = 0
    for line in text.splitlines():
        if found := re.search(r"([\d.e+-]+) GB/s, ([\d.e+-]+) us a call", line):
            network, latency = 1e9 * float(found[1]), 1e-6 * float(found[2])
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) != 10 or not cells[0].isdigit():
            continue
        ranks, tokens = int(cells[0]), int(cells[1])
        one, all_ranks = float(cells[4]), float(cells[5])
        model = one / ranks + 1e3 * (tokens * bytes_a_token(ranks, tokens=tokens) / network + calls(ranks, tokens, EXPERTS[0]) * latency)
        print(f"| {ranks} | {tokens} | {all_ranks / ranks:.2f} | {model:.2f} | {model * ranks / all_ranks:.2f} |")


def draw():
    from plotting import IMAGES, plt, save, tidy

    colours = ["#1b6ca8", "#3a7d44", "#c8553d", "#8e6c8a", "#d9a441"]
    nodes = [2**k for k in range(13)]
    figure, panels = plt.subplots(2, 2, figsize=(9, 6.4))
    for row, c in enumerate(CLUSTERS):
        rate, latency = panels[row]
        for experts, colour in zip(EXPERTS, colours):
            label = f"{experts:,}"
            rate.plot(nodes, [throughput(c, n, experts) if n <= experts else math.nan for n in nodes], color=colour, label=label)
            rate.plot(nodes, [best_throughput(c, n, experts)[0] for n in nodes], color=colour, linestyle=":")
            latency.plot(nodes, [1e3 * seconds(c, n, 1, experts) if fits(c, n, experts) else math.nan for n in nodes], color=colour, label=label)
        rate.set_title(c.name, fontsize=9)
        rate.set_ylabel("tokens a second")
        latency.set_ylabel("ms of one token")
    for panel in panels.flat:
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xlabel("ranks")
        panel.xaxis.set_major_formatter("{x:.0f}")
        tidy(panel)
    panels[0][1].legend(frameon=False, fontsize=8, title="experts")
    figure.tight_layout()
    save(figure, IMAGES / "scaling_ranks.svg")

    figure, panel = plt.subplots(figsize=(5.4, 3.4))
    several = nodes[1:]
    for name, bytes_of, colour in (("fmoe, experts cut", bytes_a_token, colours[2]),
                                   ("tensor parallelism, all_reduce", bytes_of_tensor_parallelism, colours[0]),
                                   ("expert parallelism, two all_to_all", bytes_of_expert_parallelism, colours[1])):
        panel.plot(several, [bytes_of(n) for n in several], color=colour, label=name)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("ranks")
    panel.set_ylabel("bytes of a token, received by a rank")
    panel.xaxis.set_major_formatter("{x:.0f}")
    tidy(panel)
    panel.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    save(figure, IMAGES / "bytes_ranks.svg")

    for c in CLUSTERS:
        for experts in EXPERTS:
            rate, size = best_throughput(c, 4096, experts)
            ones = [(seconds(c, n, 1, experts), n) for n in nodes if fits(c, n, experts)]
            print(f"{c.name}, {experts:,} experts: {throughput(c, 4096, experts):.3g} tokens/s in one group of 4,096, {rate:.3g} in groups of "
                  f"{size}; one token {1e3 * ones[0][0]:.3g} ms on {ones[0][1]}, {1e3 * min(ones)[0]:.3g} ms on {min(ones)[1]}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print_table()
    elif len(sys.argv) == 3 and sys.argv[1] == "--check":
        check(pathlib.Path(sys.argv[2]).read_text())
    elif len(sys.argv) == 1:
        draw()
    else:
        raise SystemExit(__doc__)
