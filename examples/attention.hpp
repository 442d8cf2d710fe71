// SPDX-License-Identifier: MIT
// Causal self-attention and its gradient, in Eigen. tests/attention_test.cpp compares it with plain
// loops and with central differences.
#pragma once

#include <cmath>

#include <Eigen/Core>

namespace training {

// Causal self-attention (Vaswani et al. 2017, Sec. 3.2.1) over sequences of `context` rows. A row
// of qkv [t, 3 d] holds query, key and value of all heads. For each sequence and head, with e = d /
// heads:
//
// P = softmax(Q K' / sqrt(e)), where row t has the rows up to t alone, and O = P V.
//
// O of all heads is y [t, d]. The caller sees to the shapes: heads divide d, and `context` divides
// the rows.
template <class T>
class attention {
 public:
  using rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using input = Eigen::Ref<const rows>;
  using output = Eigen::Ref<rows>;

  attention(Eigen::Index context, Eigen::Index heads) : context_(context), heads_(heads) {}

  // [t, 3 d] -> [t, d]. Keeps P for backward.
  void forward(const input& qkv, output y) {
    p_.resize(y.rows() * heads_, context_);
    each_head(y.rows(), y.cols(), [&](Eigen::Index first, Eigen::Index column, Eigen::Index e) {
      auto p = weights(first, column / e);
      p.noalias() = query(qkv, first, column, e) * key(qkv, first, column, e).transpose();
      const T scale = 1 / std::sqrt(static_cast<T>(e));
      for (Eigen::Index t = 0; t < context_; ++t) {
        auto seen = p.row(t).head(t + 1);
        const T most = seen.maxCoeff();
        seen = ((seen.array() - most) * scale).exp();
        const T sum = seen.sum();
        seen /= sum;
        p.row(t).tail(context_ - t - 1).setZero();
      }
      y.block(first, column, context_, e).noalias() = p * value(qkv, first, column, e);
    });
  }

  // [t, 3 d], [t, d] -> [t, 3 d]: the gradient of sum(y dy) with respect to the qkv of the last
  // forward.
  //
  // dV = P' dO; dP = dO V'; dS = P (dP - sum of dP P over the row) / sqrt(e); dQ = dS K; dK = dS'
  // Q.
  void backward(const input& qkv, const input& dy, output dqkv) {
    const Eigen::Index d = dy.cols();
    each_head(dy.rows(), d, [&](Eigen::Index first, Eigen::Index column, Eigen::Index e) {
      const auto p = weights(first, column / e);
      const auto d_out = dy.block(first, column, context_, e);
      const T scale = 1 / std::sqrt(static_cast<T>(e));
      ds_.noalias() = d_out * value(qkv, first, column, e).transpose();
      for (Eigen::Index t = 0; t < context_; ++t) {
        const T mean = ds_.row(t).dot(p.row(t));
        ds_.row(t) = p.row(t).array() * (ds_.row(t).array() - mean) * scale;
      }
      dqkv.block(first, column, context_, e).noalias() = ds_ * key(qkv, first, column, e);
      dqkv.block(first, d + column, context_, e).noalias() =
          ds_.transpose() * query(qkv, first, column, e);
      dqkv.block(first, 2 * d + column, context_, e).noalias() = p.transpose() * d_out;
    });
  }

 private:
  // Calls f(the first row of a sequence, the first column of a head, e).
  void each_head(Eigen::Index count, Eigen::Index d, const auto& f) const {
    const Eigen::Index e = d / heads_;
    for (Eigen::Index first = 0; first < count; first += context_)
      for (Eigen::Index column = 0; column < d; column += e) f(first, column, e);
  }

  auto weights(Eigen::Index first, Eigen::Index head) {
    return p_.middleRows(first * heads_ + head * context_, context_);
  }
  auto query(const input& qkv, Eigen::Index first, Eigen::Index column, Eigen::Index e) const {
    return qkv.block(first, column, context_, e);
  }
  auto key(const input& qkv, Eigen::Index first, Eigen::Index column, Eigen::Index e) const {
    return qkv.block(first, qkv.cols() / 3 + column, context_, e);
  }
  auto value(const input& qkv, Eigen::Index first, Eigen::Index column, Eigen::Index e) const {
    return qkv.block(first, 2 * (qkv.cols() / 3) + column, context_, e);
  }

  Eigen::Index context_, heads_;
  rows p_;   // (t head) of a sequence after the other, context
  rows ds_;  // context, context
};

}  // namespace training
