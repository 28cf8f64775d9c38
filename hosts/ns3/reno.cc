// SPDX-License-Identifier: Apache-2.0
#include "reno.h"

#include "ns3/simulator.h"

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(TcpPacketReno);

TypeId
TcpPacketReno::GetTypeId()
{
    static TypeId tid = TypeId("ns3::TcpPacketReno")
                            .SetParent<TcpCongestionOps>()
                            .SetGroupName("Internet")
                            .AddConstructor<TcpPacketReno>();
    return tid;
}

// A copy belongs to another socket, which it has to be introduced to.
TcpPacketReno::TcpPacketReno(const TcpPacketReno& other) : TcpCongestionOps(other)
{
}

std::string
TcpPacketReno::GetName() const
{
    return GetInstanceTypeId().GetName();
}

Ptr<TcpCongestionOps>
TcpPacketReno::Fork()
{
    return CopyObject<TcpPacketReno>(this);
}

void
TcpPacketReno::Init(Ptr<TcpSocketState> tcb)
{
    if (m_heard == PeekPointer(tcb))
    {
        return;
    }
    m_heard = PeekPointer(tcb);
    tcb->m_bytesInFlight.ConnectWithoutContext(MakeCallback(&TcpPacketReno::InFlight, this));
    tcb->m_highTxMark.ConnectWithoutContext(MakeCallback(&TcpPacketReno::Highest, this));
}

// More is in flight after each segment that is sent, be it the first time, by fast retransmission or in recovery, and after
// nothing else: TcpSocketBase looks before and after. (SND.NXT does not move for a fast retransmission, but for a SYN.)
void
TcpPacketReno::InFlight(uint32_t before, uint32_t after)
{
    if (after <= before)
    {
        return;
    }
    progress.sent += after - before;
    progress.lastSent = Simulator::Now();
    m_again = m_heard->m_congState != TcpSocketState::CA_LOSS;
    progress.lost += m_again;
}

// Told after InFlight is told of the same segment: it was new.
void
TcpPacketReno::Highest(SequenceNumber32, SequenceNumber32)
{
    progress.lost -= m_again;
    m_again = false;
}

uint32_t
TcpPacketReno::Window(Ptr<const TcpSocketState> tcb)
{
    return tcb->m_cWnd / tcb->m_segmentSize;
}

uint32_t
TcpPacketReno::Threshold(Ptr<const TcpSocketState> tcb)
{
    uint32_t bytes = tcb->m_ssThresh;
    return bytes == UINT32_MAX ? INFINITE_SSTHRESH : bytes / tcb->m_segmentSize;
}

void
TcpPacketReno::SetWindow(Ptr<TcpSocketState> tcb, uint32_t packets)
{
    if (packets != Window(tcb)) // bytes below a whole packet stay as they are
    {
        tcb->m_cWnd = packets * tcb->m_segmentSize;
    }
}

void
TcpPacketReno::SetThreshold(Ptr<TcpSocketState> tcb, uint32_t packets)
{
    if (packets != Threshold(tcb))
    {
        auto bytes = static_cast<uint64_t>(packets) * tcb->m_segmentSize;
        tcb->m_ssThresh = std::min<uint64_t>(bytes, UINT32_MAX);
    }
}

tcp_view
TcpPacketReno::View(Ptr<const TcpSocketState> tcb) const
{
    static_assert(static_cast<int>(TCP_CA_Open) == TcpSocketState::CA_OPEN);
    static_assert(static_cast<int>(TCP_CA_CWR) == TcpSocketState::CA_CWR);
    static_assert(static_cast<int>(TCP_CA_Recovery) == TcpSocketState::CA_RECOVERY);
    static_assert(static_cast<int>(TCP_CA_Loss) == TcpSocketState::CA_LOSS);
    return {
        .now = static_cast<uint64_t>(Simulator::Now().GetNanoSeconds()),
        .cwnd = Window(tcb),
        .ssthresh = Threshold(tcb),
        .cwnd_clamp = UINT32_MAX,
        .mss = tcb->m_segmentSize,
        .snd_una = tcb->m_lastAckedSeq.GetValue(),
        .snd_nxt = tcb->m_nextTxSequence.Get().GetValue(),
        .srtt_us = static_cast<uint32_t>(tcb->m_srtt.Get().GetMicroSeconds() * 8),
        .lost = progress.lost,
        .delivered = progress.delivered,
        .delivered_ce = progress.marked,
        .ca_state = static_cast<uint8_t>(tcb->m_congState.Get()),
        .cwnd_limited = tcb->m_isCwndLimited,
    };
}

void
TcpPacketReno::Take(Ptr<TcpSocketState> tcb, const tcp_view& view)
{
    SetWindow(tcb, view.cwnd);
    SetThreshold(tcb, view.ssthresh);
}

void
TcpPacketReno::Grow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    uint32_t inFlight = tcb->m_bytesInFlight / tcb->m_segmentSize;
    auto view = View(tcb);
    if (!view.cwnd_limited && !(view_in_slow_start(&view) && view.cwnd < 2 * inFlight))
    {
        return;
    }
    if (view_in_slow_start(&view))
    {
        acked = view_slow_start(&view, acked);
        Take(tcb, view);
        if (acked == 0)
        {
            return;
        }
    }
    // A packet for every whole window; an earlier surplus counts first.
    uint32_t per = std::max(view.cwnd, 1U);
    if (m_towards >= per)
    {
        m_towards = 0;
        view.cwnd++;
    }
    m_towards += acked;
    view.cwnd += m_towards / per;
    m_towards %= per;
    Take(tcb, view);
}

void
TcpPacketReno::PktsAcked(Ptr<TcpSocketState> tcb, uint32_t, const Time&)
{
    progress.delivered += (tcb->m_lastAckedSackedBytes + tcb->m_segmentSize - 1) / tcb->m_segmentSize;
}

void
TcpPacketReno::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    Grow(tcb, acked);
}

uint32_t
TcpPacketReno::LossThreshold(Ptr<const TcpSocketState> tcb) const
{
    return half_of(Window(tcb));
}

uint32_t
TcpPacketReno::GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t)
{
    return LossThreshold(tcb) * tcb->m_segmentSize;
}

} // namespace ns3
