// SPDX-License-Identifier: Apache-2.0
#include "tcp_av.h"

#include "ns3/boolean.h"
#include "ns3/simulator.h"
#include "ns3/uinteger.h"

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(TcpAv);

TypeId
TcpAv::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::TcpAv")
            .SetParent<TcpPacketReno>()
            .SetGroupName("Internet")
            .AddConstructor<TcpAv>()
            .AddAttribute("Target",
                          "kbit/s of payload that are wanted; 0: none, plain Reno",
                          UintegerValue(0),
                          MakeUintegerAccessor(&TcpAv::m_target),
                          MakeUintegerChecker<uint32_t>())
            .AddAttribute("LossLimit",
                          "Above it, per cent smoothed over 8 rounds, the guarantee is given up",
                          UintegerValue(10),
                          MakeUintegerAccessor(&TcpAv::m_lossLimit),
                          MakeUintegerChecker<uint32_t>(0, 100))
            .AddAttribute("TimeoutLimit",
                          "After more timeouts than this without a good round between them it is given up, too",
                          UintegerValue(2),
                          MakeUintegerAccessor(&TcpAv::m_timeoutLimit),
                          MakeUintegerChecker<uint32_t>())
            .AddAttribute("Rest",
                          "Before it tries again",
                          TimeValue(Seconds(5)),
                          MakeTimeAccessor(&TcpAv::m_rest),
                          MakeTimeChecker())
            .AddAttribute("Ceiling",
                          "The window does not exceed the target's either",
                          BooleanValue(false),
                          MakeBooleanAccessor(&TcpAv::m_ceiling),
                          MakeBooleanChecker());
    return tid;
}

Ptr<TcpCongestionOps>
TcpAv::Fork()
{
    return CopyObject<TcpAv>(this);
}

bool
TcpAv::Guarantees() const
{
    return m_target > 0 && !m_yielding;
}

// window = target * RTT, rounded up to packets.
void
TcpAv::RenewWindow(Ptr<const TcpSocketState> tcb)
{
    uint64_t bytes = m_target * static_cast<uint64_t>(tcb->m_srtt.Get().GetMicroSeconds()) / 8000;
    uint64_t packets = (bytes + tcb->m_segmentSize - 1) / tcb->m_segmentSize;
    m_window = std::clamp<uint64_t>(packets, 2, INFINITE);
}

void
TcpAv::StartRound(Ptr<const TcpSocketState> tcb)
{
    m_roundEnd = tcb->m_nextTxSequence;
    m_lost = progress.lost;
    m_delivered = progress.delivered;
}

void
TcpAv::GiveWay(Ptr<TcpSocketState> tcb, uint32_t window)
{
    if (!Guarantees())
    {
        return;
    }
    m_yielding = true;
    m_since = Simulator::Now();
    SetThreshold(tcb, std::min(Threshold(tcb), std::max(window / 2, 2U)));
    SetWindow(tcb, std::min(Window(tcb), Threshold(tcb)));
}

void
TcpAv::Init(Ptr<TcpSocketState> tcb)
{
    TcpPacketReno::Init(tcb);
    RenewWindow(tcb);
    StartRound(tcb);
    if (m_target > 0)
    {
        SetThreshold(tcb, m_window);
    }
}

void
TcpAv::PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt)
{
    TcpPacketReno::PktsAcked(tcb, acked, rtt);
    if (m_roundEnd > tcb->m_lastAckedSeq)
    {
        return;
    }
    uint64_t lost = progress.lost - m_lost;
    uint64_t delivered = progress.delivered - m_delivered;
    if (lost + delivered > 0)
    {
        m_loss = (7 * m_loss + lost * ONE / (lost + delivered)) / 8;
    }
    StartRound(tcb);
    RenewWindow(tcb);
    bool open = tcb->m_congState == TcpSocketState::CA_OPEN;
    if (open)
    {
        m_timeouts = 0;
    }
    uint64_t limit = m_lossLimit * ONE / 100;
    if (!m_yielding)
    {
        if (m_loss > limit)
        {
            GiveWay(tcb, Window(tcb));
        }
    }
    else if (open && m_loss <= limit / 2 && Simulator::Now() - m_since >= m_rest)
    {
        m_yielding = false;
        if (m_target > 0)
        {
            SetThreshold(tcb, std::max(Threshold(tcb), m_window));
        }
    }
}

void
TcpAv::CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state)
{
    if (state != TcpSocketState::CA_LOSS)
    {
        return;
    }
    StartRound(tcb);
    m_timeouts++;
    if (m_timeouts > m_timeoutLimit)
    {
        GiveWay(tcb, priorWindow);
    }
}

// After a timeout slow start leads back to the target.
void
TcpAv::CwndEvent(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCAEvent_t event)
{
    if (event == TcpSocketState::CA_EVENT_LOSS && Guarantees())
    {
        SetThreshold(tcb, std::max(Threshold(tcb), m_window));
    }
}

void
TcpAv::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    if (Guarantees() && InSlowStart(tcb))
    {
        SetThreshold(tcb, m_window);
    }
    Grow(tcb, acked);
    if (m_ceiling && m_target > 0)
    {
        SetWindow(tcb, std::min(Window(tcb), m_window));
    }
}

// Temporary congestion: the window is kept, as far as the target needs it.
uint32_t
TcpAv::LossThreshold(Ptr<const TcpSocketState> tcb) const
{
    uint32_t half = TcpPacketReno::LossThreshold(tcb);
    return Guarantees() ? std::max(half, std::min(Window(tcb), m_window)) : half;
}

uint32_t
TcpAv::GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t bytesInFlight)
{
    priorWindow = Window(tcb);
    return TcpPacketReno::GetSsThresh(tcb, bytesInFlight);
}

} // namespace ns3
