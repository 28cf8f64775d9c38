// SPDX-License-Identifier: Apache-2.0
// TCP-AV, a QoS-TCP: Ando, Murase and Oguchi, "Characteristics of QoS-guaranteed TCP on real mobile terminal in wireless LAN",
// section II.B. The user names a target rate. Of it and the RTT follows the window that the rate takes; the slow-start
// threshold is that window, a loss or a mark returns to it, and the guarantee is given up before the network collapses. The
// paper names these behaviours; the loop over the delivered rate and the rules for giving way are ours (docs/hosts/cc.md). In
// Linux: hosts/bpf/tcp_av.bpf.c, which also bounds the retransmission timer; ns-3's has no bound.
#pragma once

#include "reno.h"

namespace ns3
{

class TcpAv : public TcpPacketReno
{
  public:
    static TypeId GetTypeId();
    void Init(Ptr<TcpSocketState> tcb) override;
    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt) override;
    void CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state) override;
    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override;
    Ptr<TcpCongestionOps> Fork() override;

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t bytesInFlight) override;

    uint32_t priorWindow{0}; ///< packets, before the last reduction; kept at each threshold asked for

  protected:
    uint32_t LossThreshold(Ptr<const TcpSocketState> tcb) const override;

  private:
    static constexpr uint64_t ONE = 65536;       ///< loss shares and the gain are in 1/65536
    static constexpr int64_t DEAD = 1'000'000;   ///< us without an acknowledgement, after which a link is dead
    static constexpr uint32_t PACED = 1'000'000; ///< kbit/s
    static constexpr uint64_t GAIN_PART = 4;     ///< of a round's error
    static constexpr uint64_t TOLERANCE = 20;    ///< a twentieth of the target

    bool Guarantees() const;
    void RenewWindow(Ptr<const TcpSocketState> tcb);
    void StartRound(Ptr<const TcpSocketState> tcb);
    void GiveWay(Ptr<TcpSocketState> tcb, uint32_t window);
    void CloseLoop(Ptr<const TcpSocketState> tcb, uint64_t kbit);

    uint32_t m_target;    ///< kbit/s of payload; 0: none, plain Reno
    uint32_t m_lossLimit; ///< percent
    uint32_t m_timeoutLimit;
    Time m_rest;    ///< before it tries again
    bool m_ceiling; ///< the window does not exceed the target's either
    Time m_patience;
    uint32_t m_window{0};   ///< packets that the target takes; 0: unknown, as there is no RTT yet
    uint64_t m_gain{ONE};   ///< of the window over target * RTT
    uint64_t m_loss{0};     ///< smoothed share
    uint32_t m_timeouts{0}; ///< since the last good round
    bool m_yielding{false};
    bool m_reached{false};       ///< the window has been the target's since the start or the last timeout
    SequenceNumber32 m_roundEnd; ///< the round is over when this is acknowledged
    Time m_roundStart;
    uint32_t m_lost{0}; ///< `progress` at its start
    uint32_t m_delivered{0};
    uint32_t m_marked{0};
    Time m_acknowledged; ///< the last time
    Time m_since;        ///< when it gave way
    Time m_shortSince;   ///< start of the first round that missed the target, while m_short
    bool m_short{false};
};

} // namespace ns3
