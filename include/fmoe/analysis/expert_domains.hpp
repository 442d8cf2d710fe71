// SPDX-License-Identifier: MIT
// Finds the experts of Monet that belong to a domain of text (Park et al. 2024, Secs. 5.1 and D.1),
// over a stream of batches.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <fmoe/analysis/routed_rows.hpp>
#include <fmoe/base/pairs.hpp>

namespace fmoe {

// The mean routing probabilities of experts (i, j), i, j < s, in each domain, over all tokens added
// so far. The routing probability of a token is the sum over heads p of g1[p,i] g2[p,j], so the
// means of all experts add up to the number of heads. It takes 8 bytes for each expert and domain,
// and gives the same bits for any threads and batches.
class expert_domains {
 public:
  expert_domains(std::size_t s, std::size_t domains)
      : s_(s),
        tokens_(domains),
        sums_(detail::element_count(std::array{domains, s, s}, sizeof(double))) {}

  // For add_routing: what `add` adds.
  auto batch(std::size_t domain) {
    expects_domain(domain);
    return added{*this, [domain](std::size_t) { return domain; }, {}};
  }
  auto batch(std::span<const std::size_t> domain_of_token) {
    for (const std::size_t domain : domain_of_token) expects_domain(domain);
    return added{*this, [domain_of_token](std::size_t t) { return domain_of_token[t]; },
                 domain_of_token.size()};
  }

  // Adds a batch: g1, g2 [t, p, s] of one domain, or with a domain for each token. Throws before
  // anything is added: shape_error unless they fit each other and s, value_error if there is no
  // such domain and for entries that are not finite.
  template <class Arch = cpu::native, class T>
  void add(const tensor<T, 3>& g1, const tensor<T, 3>& g2, std::size_t domain) {
    add_routing<Arch>(g1, g2, batch(domain));
  }
  template <class Arch = cpu::native, class T>
  void add(const tensor<T, 3>& g1, const tensor<T, 3>& g2,
           std::span<const std::size_t> domain_of_token) {
    add_routing<Arch>(g1, g2, batch(domain_of_token));
  }

  std::size_t domains() const { return tokens_.size(); }
  // Returns the number of tokens of a domain. Throws value_error if there is no such domain.
  std::size_t tokens(std::size_t domain) const {
    expects_domain(domain);
    return tokens_[domain];
  }
  // Returns 0 for a domain without tokens. Throws value_error if there is no such domain or expert.
  double mean_probability(std::size_t domain, index_pair expert) const {
    expects_domain(domain);
    expects_expert(expert);
    return mean(domain, expert);
  }

  // Returns the domain in which the mean probability of the expert is not 0 and at least `ratio`
  // times that of the second domain; among equals the first. Returns nullopt for a generalist, and
  // for an expert that no token has reached. Throws value_error for a ratio below 1, and if a
  // domain has no tokens, because the expert might belong to it.
  std::optional<std::size_t> domain_of(index_pair expert, double ratio = 2) const {
    expects_comparable(ratio);
    expects_expert(expert);
    return assigned(expert, ratio);
  }
  // Returns the experts of a domain, ascending, as monet_hd::deleted and monet_vd::deleted take
  // them. Throws as domain_of.
  std::vector<index_pair> experts_of(std::size_t domain, double ratio = 2) const {
    expects_domain(domain);
    expects_comparable(ratio);
    std::vector<index_pair> experts;
    for (std::size_t i = 0; i < s_; ++i)
      for (std::size_t j = 0; j < s_; ++j)
        if (assigned({i, j}, ratio) == domain) experts.push_back({i, j});
    return experts;
  }

 private:
  template <class Domain_of>
  struct added {
    expert_domains& to;
    Domain_of domain_of;
    std::optional<std::size_t> tokens;  // that have domains of their own

    template <class T>
    void check(const tensor<T, 3>& g1, const tensor<T, 3>& g2) const {
      detail::expects<shape_error>(!tokens || *tokens == g1.shape()[0],
                                   "[expert_domains] there are domains of ", tokens.value_or(0),
                                   " tokens and g1 is of ", g1.shape()[0]);
      detail::expects_routing(g1, g2, to.s_);
    }
    void begin() const {}
    void visit(std::size_t i, std::size_t t, const routed_row& row) const {
      double* const sums = to.sums_.data() + (domain_of(t) * to.s_ + i) * to.s_;
      row.each([sums](std::size_t j, double q) { sums[j] += q; });
    }
    void end(std::size_t count) const {
      for (std::size_t t = 0; t < count; ++t) ++to.tokens_[domain_of(t)];
    }
  };
  template <class Domain_of>
  added(expert_domains&, Domain_of, std::optional<std::size_t>) -> added<Domain_of>;

  double mean(std::size_t domain, index_pair e) const {
    return tokens_[domain] == 0
               ? 0
               : sums_[(domain * s_ + e[0]) * s_ + e[1]] / static_cast<double>(tokens_[domain]);
  }
  std::optional<std::size_t> assigned(index_pair expert, double ratio) const {
    std::size_t best = 0;
    double most = 0, second = 0;
    for (std::size_t d = 0; d < domains(); ++d) {
      const double p = mean(d, expert);
      if (p > most) {
        second = most;
        most = p;
        best = d;
      } else if (p > second) {
        second = p;
      }
    }
    if (most == 0 || most < ratio * second) return {};
    return best;
  }

  void expects_domain(std::size_t domain) const {
    detail::expects<value_error>(domain < domains(), "[expert_domains] domain ", domain,
                                 " is asked for and there are ", domains());
  }
  void expects_expert(index_pair e) const {
    detail::expects<value_error>(e[0] < s_ && e[1] < s_, "[expert_domains] expert (", e[0], ", ",
                                 e[1], ") is asked for and there are ", s_, " x ", s_);
  }
  void expects_comparable(double ratio) const {
    detail::expects<value_error>(ratio >= 1, "[expert_domains] the ratio is ", ratio,
                                 " and has to be 1 at least");
    for (std::size_t d = 0; d < domains(); ++d)
      detail::expects<value_error>(tokens_[d] != 0, "[expert_domains] domain ", d,
                                   " has no tokens, and its experts are asked for");
  }

  std::size_t s_;
  std::vector<std::size_t> tokens_;  // for each domain
  std::vector<double> sums_;         // by domain, i and j
};

}  // namespace fmoe
