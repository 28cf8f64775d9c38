// SPDX-License-Identifier: Apache-2.0
// The arithmetic of paper 002 (CWND control by the ratio of round trips): the ideal window, and when a connection is under
// control. The same as hosts/src/cwnd/model.rs, whose vectors (hosts/tests/cwnd_vectors.json) test both.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cwnd
{

constexpr double ON_RATIO = 6.0;            ///< control starts above it
constexpr double ONE_RATIO = 5.0;           ///< above it, while control is on, the window is one segment
constexpr int64_t DRAIN_US = 2'000'000;     ///< how long a window of one may take to drain the queue
constexpr int64_t AGAIN_US = 10'000'000;    ///< how often that is tried again
constexpr uint32_t DELAYED_ACK_US = 40'000; ///< that a lone segment waits for its ACK (Linux)

/// Expressions 2 to 4: segments of 1.5 KB, rounded down, at least `least`: the paper has 1, hosts/src/cwnd 2. bandwidth:
/// BW_max, Mb/s. exponent: of f(n).
uint32_t IdealWindow(
    double bandwidth, double exponent, uint32_t terminals, uint32_t connections, uint32_t rttUs, uint32_t least);

/// The round trip without the delayed ACK that a window of one segment provokes, us.
uint32_t PathRtt(uint32_t rttUs, uint32_t minRttUs, uint32_t window);

/// Expression 5, at least 1; 1 without a minimum.
double Ratio(uint32_t rttUs, uint32_t minRttUs);

enum class Bound
{
    None,
    One,
    Ideal,
};

/// Control of one connection.
class Control
{
  public:
    /// turns: what hosts/src/cwnd adds to the paper's rule: a terminal that yields for 2 s in vain returns to the
    /// ideal window for 8 s.
    explicit Control(bool turns = true);

    /// Return the connection's bound after a reading of its ratio at a time, us.
    Bound Step(int64_t nowUs, double ratio);

  private:
    bool m_turns;
    bool m_on{false};
    bool m_one{false};
    int64_t m_oneSince{0};
};

} // namespace cwnd
