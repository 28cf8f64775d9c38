// SPDX-License-Identifier: Apache-2.0
#include "cwnd_control.h"

#include <algorithm>
#include <cmath>

namespace cwnd
{

uint32_t
IdealWindow(double bandwidth, double exponent, uint32_t terminals, uint32_t connections, uint32_t rttUs, uint32_t least)
{
    constexpr double SEGMENT = 1500;
    double n = std::max(terminals, 1U);
    double bytesPerSecond = bandwidth * std::pow(n, exponent) * 1e6 / 8;
    double segments = bytesPerSecond * rttUs / 1e6 / SEGMENT;
    return std::clamp<double>(segments / (n * std::max(connections, 1U)), least, INT32_MAX);
}

uint32_t
PathRtt(uint32_t rttUs, uint32_t minRttUs, uint32_t window)
{
    uint32_t held = window == 1 ? std::min(rttUs, DELAYED_ACK_US) : 0;
    return std::max(rttUs - held, minRttUs);
}

double
Ratio(uint32_t rttUs, uint32_t minRttUs)
{
    return minRttUs == 0 ? 1.0 : std::max(1.0, static_cast<double>(rttUs) / minRttUs);
}

Control::Control(bool turns) : m_turns(turns)
{
}

Bound
Control::Step(int64_t nowUs, double ratio)
{
    m_on |= ratio > ON_RATIO;
    if (!m_on)
    {
        return Bound::None;
    }
    if (ratio <= ONE_RATIO)
    {
        m_one = false;
        return Bound::Ideal;
    }
    if (!m_one || nowUs - m_oneSince >= AGAIN_US)
    {
        m_one = true;
        m_oneSince = nowUs;
    }
    return m_turns && nowUs - m_oneSince >= DRAIN_US ? Bound::Ideal : Bound::One;
}

} // namespace cwnd

// For tests, which call these from Python.
extern "C"
{
uint32_t
cwnd_ideal(double bandwidth, double exponent, uint32_t terminals, uint32_t connections, uint32_t rttUs, uint32_t least)
{
    return cwnd::IdealWindow(bandwidth, exponent, terminals, connections, rttUs, least);
}

uint32_t
cwnd_path_rtt(uint32_t rttUs, uint32_t minRttUs, uint32_t window)
{
    return cwnd::PathRtt(rttUs, minRttUs, window);
}

double
cwnd_ratio(uint32_t rttUs, uint32_t minRttUs)
{
    return cwnd::Ratio(rttUs, minRttUs);
}

/// The bounds of a connection whose ratio was read at these times: 0 none, 1 one segment, 2 the ideal window.
void
cwnd_bounds(bool turns, const int64_t* us, const double* ratios, uint32_t* bounds, size_t count)
{
    cwnd::Control control(turns);
    for (size_t i = 0; i < count; i++)
    {
        bounds[i] = static_cast<uint32_t>(control.Step(us[i], ratios[i]));
    }
}
}
