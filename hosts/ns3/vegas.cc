// SPDX-License-Identifier: Apache-2.0
#include "vegas.h"

#include "ns3/simulator.h"
#include "ns3/uinteger.h"

namespace ns3
{

namespace
{

constexpr vegas_fair_options DEFAULTS = VEGAS_FAIR_DEFAULTS;

} // namespace

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
                                          UintegerValue(DEFAULTS.vegas.alpha),
                                          MakeUintegerAccessor(&TcpPacketVegas::m_alpha),
                                          MakeUintegerChecker<uint32_t>())
                            .AddAttribute("Beta",
                                          "More packets in queues: the window shrinks",
                                          UintegerValue(DEFAULTS.vegas.beta),
                                          MakeUintegerAccessor(&TcpPacketVegas::m_beta),
                                          MakeUintegerChecker<uint32_t>())
                            .AddAttribute("Gamma",
                                          "More packets in queues: slow start ends",
                                          UintegerValue(DEFAULTS.vegas.gamma),
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
TcpPacketVegas::Init(Ptr<TcpSocketState> tcb)
{
    TcpPacketReno::Init(tcb);
    auto view = View(tcb);
    vegas_start(&m_state.vegas, &view);
}

void
TcpPacketVegas::PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt)
{
    TcpPacketReno::PktsAcked(tcb, acked, rtt);
    // ns-3 hands in the smoothed round trip; the last one itself stands in the state, negative if this ACK gave none.
    Time last = tcb->m_lastRtt.Get();
    vegas_sample(&m_state.vegas, last.IsStrictlyNegative() ? -1 : static_cast<int32_t>(last.GetMicroSeconds()));
}

void
TcpPacketVegas::CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state)
{
    auto view = View(tcb);
    vegas_set_state(&m_state.vegas, &view, state);
}

void
TcpPacketVegas::CwndEvent(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCAEvent_t event)
{
    if (event == TcpSocketState::CA_EVENT_TX_START || event == TcpSocketState::CA_EVENT_CWND_RESTART)
    {
        auto view = View(tcb);
        vegas_start(&m_state.vegas, &view);
    }
}

vegas_options
TcpPacketVegas::Options()
{
    return {m_alpha, m_beta, m_gamma};
}

void
TcpPacketVegas::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    auto options = Options();
    auto view = View(tcb);
    if (vegas_ack(&m_state.vegas, &view, view.snd_una, acked, &options))
    {
        Grow(tcb, acked);
    }
    else
    {
        Take(tcb, view);
    }
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
                                          TimeValue(MilliSeconds(DEFAULTS.pause)),
                                          MakeTimeAccessor(&TcpVegasFair::m_pause),
                                          MakeTimeChecker())
                            .AddAttribute("Introduction",
                                          "Bytes of a session during which it is favoured (INTRO_LENGTH)",
                                          UintegerValue(DEFAULTS.introduction),
                                          MakeUintegerAccessor(&TcpVegasFair::m_introduction),
                                          MakeUintegerChecker<uint32_t>())
                            .AddAttribute("MoreAlpha",
                                          "What is added to alpha then",
                                          UintegerValue(DEFAULTS.more_alpha),
                                          MakeUintegerAccessor(&TcpVegasFair::m_moreAlpha),
                                          MakeUintegerChecker<uint32_t>())
                            .AddAttribute("MoreBeta",
                                          "What is added to beta then",
                                          UintegerValue(DEFAULTS.more_beta),
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
    if (event == TcpSocketState::CA_EVENT_TX_START && progress.sent > 0)
    {
        auto options = FairOptions();
        uint64_t idle = (Simulator::Now() - progress.lastSent).GetNanoSeconds();
        vegas_fair_transmit(&m_state, idle, progress.sent, &options);
    }
    TcpPacketVegas::CwndEvent(tcb, event);
}

vegas_fair_options
TcpVegasFair::FairOptions()
{
    auto pause = static_cast<uint32_t>(m_pause.GetMilliSeconds());
    return {TcpPacketVegas::Options(), pause, m_introduction, m_moreAlpha, m_moreBeta};
}

vegas_options
TcpVegasFair::Options()
{
    auto options = FairOptions();
    return vegas_fair_now(&m_state, progress.sent, &options);
}

} // namespace ns3
