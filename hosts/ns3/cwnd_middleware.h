// SPDX-License-Identifier: Apache-2.0
// The middleware of paper 002 on a terminal: it announces itself by UDP broadcast every 0.3 s, counts who else does, reads the
// round trips of its terminal's connections every 0.5 s and bounds their windows. In Linux: hosts/src/cwnd.
#pragma once

#include "../algorithms/cwnd.h"

#include "ns3/application.h"
#include "ns3/event-id.h"
#include "ns3/socket.h"
#include "ns3/tcp-cubic.h"

#include <map>
#include <vector>

namespace ns3
{

/// CUBIC whose window somebody may bound, as a clamp bounds it in Linux: the slow-start threshold, too, and with the next ACK.
class TcpBoundedCubic : public TcpCubic
{
  public:
    static TypeId GetTypeId();
    TcpBoundedCubic() = default;
    TcpBoundedCubic(const TcpBoundedCubic& other);
    void Init(Ptr<TcpSocketState> tcb) override;
    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt) override;
    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override;
    Ptr<TcpCongestionOps> Fork() override;

    static constexpr uint32_t UNBOUNDED = UINT32_MAX;
    void Bound(uint32_t packets);
    Ptr<TcpSocketState> State() const;
    uint32_t SmallestRtt() const; ///< us; 0: none yet
    uint64_t Acked() const;       ///< packets

  private:
    Ptr<TcpSocketState> m_state;
    uint32_t m_bound{UNBOUNDED};
    uint32_t m_smallest{0};
    uint64_t m_acked{0};
};

class CwndMiddleware : public Application
{
  public:
    static TypeId GetTypeId();
    void Follow(Ptr<TcpBoundedCubic> connection);

    /// Terminals that send, this one included.
    uint32_t Terminals() const;

  private:
    struct Tracked
    {
        Ptr<TcpBoundedCubic> connection;
        cwnd_control control{};
        cwnd_bound bound{CWND_NONE};
        uint32_t rtt{0};
        uint64_t acked{0};
        bool sending{false};
        Time sent;
        uint32_t window{TcpBoundedCubic::UNBOUNDED};
    };

    void StartApplication() override;
    void StopApplication() override;
    void DoDispose() override;
    void Announce();
    void Hear(Ptr<Socket> socket);
    void Read();
    void Look(Tracked& tracked);

    double m_bandwidth; ///< BW_max, Mb/s
    double m_exponent;  ///< of f(n)
    bool m_turns;
    uint16_t m_port;
    Ptr<Socket> m_socket;
    EventId m_announce;
    EventId m_read;
    std::map<uint32_t, std::pair<Time, bool>> m_neighbours; ///< node -> when it was heard last, whether it sends
    std::vector<Tracked> m_connections;
};

} // namespace ns3
