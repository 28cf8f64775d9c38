// SPDX-License-Identifier: Apache-2.0
#include "vegas_fair.h"

#include "ns3/simulator.h"
#include "ns3/uinteger.h"

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(TcpPacketVegas);
NS_OBJECT_ENSURE_REGISTERED(TcpVegasFair);

TypeId
TcpPacketVegas::GetTypeId()
{
    static TypeId tid = TypeId("ns3::TcpPacketVegas")
                            .SetParent<TcpPacketReno>()
                            .SetGroupName("Internet")
                            .AddConstructor<TcpPacketVegas>()
                            .AddAttribute("Alpha",
                                          "Fewer packets in queues: the window grows",
                                          UintegerValue(2),
                                          MakeUintegerAccessor(&TcpPacketVegas::m_alpha),
                                          MakeUintegerChecker<uint32_t>())
                            .AddAttribute("Beta",
                                          "More packets in queues: the window shrinks",
                                          UintegerValue(4),
                                          MakeUintegerAccessor(&TcpPacketVegas::m_beta),
                                          MakeUintegerChecker<uint32_t>())
                            .AddAttribute("Gamma",
                                          "More packets in queues: slow start ends",
                                          UintegerValue(1),
                                          MakeUintegerAccessor(&TcpPacketVegas::m_gamma),
                                          MakeUintegerChecker<uint32_t>());
    return tid;
}

Ptr<TcpCongestionOps>
TcpPacketVegas::Fork()
{
    return CopyObject<TcpPacketVegas>(this);
}

void
TcpPacketVegas::StartRound(Ptr<const TcpSocketState> tcb)
{
    m_roundEnd = tcb->m_nextTxSequence;
    m_samples = 0;
    m_roundRtt = NO_RTT;
}

void
TcpPacketVegas::Restart(Ptr<const TcpSocketState> tcb)
{
    m_baseRtt = NO_RTT;
    m_active = true;
    StartRound(tcb);
}

void
TcpPacketVegas::Init(Ptr<TcpSocketState> tcb)
{
    TcpPacketReno::Init(tcb);
    Restart(tcb);
}

void
TcpPacketVegas::PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt)
{
    TcpPacketReno::PktsAcked(tcb, acked, rtt);
    // ns-3 hands in the smoothed round trip; the last one itself stands in the state.
    if (tcb->m_lastRtt.Get().IsStrictlyNegative())
    {
        return; // this ACK gave none
    }
    int64_t sample = tcb->m_lastRtt.Get().GetMicroSeconds() + 1; // never 0: it is divided by
    m_baseRtt = std::min(m_baseRtt, sample);
    m_roundRtt = std::min(m_roundRtt, sample);
    m_samples++;
}

void
TcpPacketVegas::CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state)
{
    m_active = state == TcpSocketState::CA_OPEN;
    if (m_active)
    {
        StartRound(tcb);
    }
}

void
TcpPacketVegas::CwndEvent(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCAEvent_t event)
{
    if (event == TcpSocketState::CA_EVENT_TX_START || event == TcpSocketState::CA_EVENT_CWND_RESTART)
    {
        Restart(tcb);
    }
}

std::pair<uint32_t, uint32_t>
TcpPacketVegas::Bounds()
{
    return {m_alpha, m_beta};
}

void
TcpPacketVegas::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    auto [alpha, beta] = Bounds();
    if (!m_active)
    {
        Grow(tcb, acked);
    }
    else if (tcb->m_lastAckedSeq > m_roundEnd)
    {
        if (m_samples > 2) // one or two may all be of delayed ACKs: too few to judge by
        {
            Judge(tcb, alpha, beta, acked);
        }
        else
        {
            Grow(tcb, acked);
        }
        StartRound(tcb);
    }
    else if (InSlowStart(tcb))
    {
        Double(tcb, acked);
    }
}

// At the end of a round. `queued` is the paper's Diff: packets of this window that stood in queues.
void
TcpPacketVegas::Judge(Ptr<TcpSocketState> tcb, uint32_t alpha, uint32_t beta, uint32_t acked)
{
    uint64_t window = Window(tcb);
    uint64_t threshold = Threshold(tcb);
    uint64_t queued = window * (m_roundRtt - m_baseRtt) / m_baseRtt;
    if (InSlowStart(tcb) && queued <= m_gamma)
    {
        Double(tcb, acked);
        window = Window(tcb);
    }
    else if (InSlowStart(tcb))
    {
        window = std::min<uint64_t>(window, window * m_baseRtt / m_roundRtt + 1);
        threshold = std::min(threshold, window);
    }
    else if (queued > beta)
    {
        window--;
        threshold = std::min(threshold, window);
    }
    else if (queued < alpha)
    {
        window++;
    }
    window = std::max<uint64_t>(window, 2);
    SetWindow(tcb, window);
    SetThreshold(tcb, std::max(threshold, window / 2 + window / 4));
}

TypeId
TcpVegasFair::GetTypeId()
{
    static TypeId tid = TypeId("ns3::TcpVegasFair")
                            .SetParent<TcpPacketVegas>()
                            .SetGroupName("Internet")
                            .AddConstructor<TcpVegasFair>()
                            .AddAttribute("Pause",
                                          "Without a segment for so long: a new session starts (PAUSE_INTERVAL)",
                                          TimeValue(Seconds(1)),
                                          MakeTimeAccessor(&TcpVegasFair::m_pause),
                                          MakeTimeChecker())
                            .AddAttribute("Introduction",
                                          "Bytes of a session during which it is favoured (INTRO_LENGTH)",
                                          UintegerValue(5000),
                                          MakeUintegerAccessor(&TcpVegasFair::m_introduction),
                                          MakeUintegerChecker<uint32_t>())
                            .AddAttribute("MoreAlpha",
                                          "What is added to alpha then",
                                          UintegerValue(1),
                                          MakeUintegerAccessor(&TcpVegasFair::m_moreAlpha),
                                          MakeUintegerChecker<uint32_t>())
                            .AddAttribute("MoreBeta",
                                          "What is added to beta then",
                                          UintegerValue(2),
                                          MakeUintegerAccessor(&TcpVegasFair::m_moreBeta),
                                          MakeUintegerChecker<uint32_t>());
    return tid;
}

Ptr<TcpCongestionOps>
TcpVegasFair::Fork()
{
    return CopyObject<TcpVegasFair>(this);
}

// Told before data is sent and counted, with none in flight. A connection's first segment follows no earlier one.
void
TcpVegasFair::CwndEvent(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCAEvent_t event)
{
    if (event == TcpSocketState::CA_EVENT_TX_START && progress.sent > 0 &&
        Simulator::Now() - progress.lastSent >= m_pause)
    {
        m_introducing = true;
        m_sessionStart = progress.sent;
    }
    TcpPacketVegas::CwndEvent(tcb, event);
}

std::pair<uint32_t, uint32_t>
TcpVegasFair::Bounds()
{
    if (m_introducing && progress.sent - m_sessionStart >= m_introduction)
    {
        m_introducing = false;
    }
    auto [alpha, beta] = TcpPacketVegas::Bounds();
    return m_introducing ? std::pair(alpha + m_moreAlpha, beta + m_moreBeta) : std::pair(alpha, beta);
}

} // namespace ns3
