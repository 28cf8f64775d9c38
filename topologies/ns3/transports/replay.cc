// SPDX-License-Identifier: Apache-2.0
// Plays what a Linux kernel told a congestion control (`hosts cc record`) to one of ours. For tests, which call these from
// Python (topologies/tests/test_ns3_transports.py).
#include "reno.h"
#include "tcp_av.h"

#include "ns3/object-factory.h"
#include "ns3/simulator.h"

#include <sstream>

namespace
{

/// An event, in the kernel's units: windows and thresholds in packets, times in us.
struct Recorded
{
    int64_t now, sinceSent, rtt, srtt;
    uint64_t sent;
    uint32_t window, threshold, towards, priorWindow, acked, una, next, segment, lost, delivered, marked, mostOut, limited, state;
};

struct Replay
{
    ns3::Ptr<ns3::TcpPacketReno> control;
    ns3::Ptr<ns3::TcpSocketState> tcb = ns3::CreateObject<ns3::TcpSocketState>();
};

/// As the kernel numbers its events.
ns3::TcpSocketState::TcpCAEvent_t
Event(uint32_t number)
{
    constexpr ns3::TcpSocketState::TcpCAEvent_t EVENTS[] = {ns3::TcpSocketState::CA_EVENT_TX_START,
                                                            ns3::TcpSocketState::CA_EVENT_CWND_RESTART,
                                                            ns3::TcpSocketState::CA_EVENT_COMPLETE_CWR,
                                                            ns3::TcpSocketState::CA_EVENT_LOSS};
    return EVENTS[number];
}

} // namespace

extern "C"
{
    /// transport: a TypeId, with attributes.
    Replay* replay_new(const char* transport)
    {
        ns3::Simulator::Destroy(); // time begins anew
        std::istringstream text(transport);
        ns3::ObjectFactory factory;
        text >> factory;
        return new Replay{factory.Create<ns3::TcpPacketReno>()};
    }

    void replay_free(Replay* replay)
    {
        delete replay;
    }

    /// Calls `callback` with `argument` on the state of `event`, whose window, threshold and `towards` are then what the control
    /// made of them. Returns the threshold that it answered, packets; 0 where none is asked for.
    uint32_t replay_call(Replay* replay, const char* callback, uint32_t argument, Recorded* event)
    {
        using namespace ns3;
        if (auto later = MicroSeconds(event->now) - Simulator::Now(); later.IsStrictlyPositive())
        {
            Simulator::Stop(later);
            Simulator::Run();
        }
        auto& tcb = *replay->tcb;
        auto& control = *replay->control;
        uint64_t threshold = static_cast<uint64_t>(event->threshold) * event->segment;
        tcb.m_segmentSize = event->segment;
        tcb.m_cWnd = event->window * event->segment;
        tcb.m_ssThresh = std::min<uint64_t>(threshold, UINT32_MAX);
        tcb.m_lastAckedSeq = SequenceNumber32(event->una);
        tcb.m_nextTxSequence = SequenceNumber32(event->next);
        tcb.m_srtt = MicroSeconds(event->srtt);
        tcb.m_lastRtt = MicroSeconds(event->rtt);
        tcb.m_bytesInFlight = event->mostOut * event->segment;
        tcb.m_isCwndLimited = event->limited;
        tcb.m_congState = static_cast<TcpSocketState::TcpCongState_t>(event->state);
        control.towards = event->towards;
        control.progress = {event->sent,
                            Simulator::Now() - MicroSeconds(event->sinceSent),
                            event->lost,
                            event->delivered,
                            event->marked};
        if (auto av = DynamicCast<TcpAv>(replay->control))
        {
            av->priorWindow = event->priorWindow;
        }
        std::string name = callback;
        uint32_t answer = 0;
        if (name == "init")
        {
            control.Init(replay->tcb);
        }
        else if (name == "pkts_acked")
        {
            control.PktsAcked(replay->tcb, event->acked, tcb.m_srtt);
        }
        else if (name == "cong_avoid")
        {
            control.IncreaseWindow(replay->tcb, event->acked);
        }
        else if (name == "set_state")
        {
            control.CongestionStateSet(replay->tcb, static_cast<TcpSocketState::TcpCongState_t>(argument));
        }
        else if (name == "cwnd_event")
        {
            control.CwndEvent(replay->tcb, Event(argument));
        }
        else
        {
            answer = control.GetSsThresh(replay->tcb, event->mostOut * event->segment) / event->segment;
        }
        event->window = TcpPacketReno::Window(replay->tcb);
        event->threshold = TcpPacketReno::Threshold(replay->tcb);
        event->towards = control.towards;
        return answer;
    }
}
