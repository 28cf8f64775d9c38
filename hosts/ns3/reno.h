// SPDX-License-Identifier: Apache-2.0
// Base of the congestion controls here: Reno (RFC 5681) as Linux counts it, in whole packets, and counts of the packets
// that a connection has sent, lost and delivered. The laws themselves are in hosts/algorithms, and run in Linux as BPF
// programs (hosts/bpf); Reno there is the kernel's own.
#pragma once

#include "../algorithms/tcp.h"

#include "ns3/tcp-congestion-ops.h"
#include "ns3/tcp-socket-state.h"

namespace ns3
{

/// ns-3 calls a congestion control as Linux does, but tells it less. This counts the rest.
struct TcpProgress
{
    uint64_t sent{0};      ///< bytes of payload, with retransmissions
    Time lastSent;         ///< when data was last sent
    uint32_t lost{0};      ///< packets sent again outside the repair of a timeout, which marks a whole window lost
    uint32_t delivered{0}; ///< packets acknowledged, cumulatively or selectively
    uint32_t marked{0};    ///< answers to marks (ECN), as far as a control counts them
};

/// Reno in packets. Windows and thresholds here are packets of a full segment; ns-3 keeps bytes.
class TcpPacketReno : public TcpCongestionOps
{
  public:
    static TypeId GetTypeId();
    TcpPacketReno() = default;
    TcpPacketReno(const TcpPacketReno& other);

    std::string GetName() const override;
    void Init(Ptr<TcpSocketState> tcb) override;
    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt) override;
    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override;
    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t bytesInFlight) override;
    Ptr<TcpCongestionOps> Fork() override;

    static uint32_t Window(Ptr<const TcpSocketState> tcb);
    static uint32_t Threshold(Ptr<const TcpSocketState> tcb);
    static void SetWindow(Ptr<TcpSocketState> tcb, uint32_t packets);
    static void SetThreshold(Ptr<TcpSocketState> tcb, uint32_t packets);

    TcpProgress progress;

  protected:
    tcp_view View(Ptr<const TcpSocketState> tcb) const;
    /// Take the window and the threshold of a view.
    static void Take(Ptr<TcpSocketState> tcb, const tcp_view& view);
    /// Slow start or congestion avoidance, while the window is what limits the sender (RFC 7661).
    void Grow(Ptr<TcpSocketState> tcb, uint32_t acked);
    /// The threshold after a loss, packets.
    virtual uint32_t LossThreshold(Ptr<const TcpSocketState> tcb) const;

  private:
    void InFlight(uint32_t before, uint32_t after);
    void Highest(SequenceNumber32 before, SequenceNumber32 after);

    uint32_t m_towards{0};            ///< packets acknowledged towards the window's next increase
    TcpSocketState* m_heard{nullptr}; ///< whose changes are counted: it has this control, and lives no longer
    bool m_again{false};              ///< the last segment counts as lost, unless it turns out to be new
};

} // namespace ns3
