// SPDX-License-Identifier: Apache-2.0
// TCP in a cell (cell.h).
#pragma once

#include "cwnd_middleware.h"
#include "settings.h"

#include "ns3/inet-socket-address.h"
#include "ns3/tcp-socket-base.h"

#include <string>
#include <vector>

namespace ns3
{

/// TCP from one node to another: as much as goes, or sessions on one connection.
class CellFlow
{
  public:
    /// Raises SettingError for what cannot be.
    CellFlow(std::string name, Ptr<Node> sender, Ptr<Node> receiver, Ipv4Address to, uint16_t port, Settings& settings);

    std::string name;
    Ptr<Node> sender;
    std::string transport;
    double start; ///< it connects
    double send;  ///< as much as goes, from here on
    double stop;

    /// Has it happen, once all of it is known to be possible.
    void Schedule();
    /// Bytes that arrived since the last time.
    uint64_t TakeArrived();
    bool Begun() const;
    Ptr<TcpSocketState> State() const;
    uint32_t SmallestRtt() const; ///< us; 0: none yet
    double Window() const;        ///< segments; 0: none yet
    /// Whether the segment is one of the first two of a session.
    bool Opens(uint32_t sequence) const;

    struct Session
    {
        double start;
        uint64_t until;      ///< bytes of the connection with it
        double finished{-1}; ///< all of it acknowledged to the sender
        double arrived{-1};  ///< all of it at the receiver
    };

    std::vector<Session> sessions;
    Ptr<TcpBoundedCubic> bounded; ///< its congestion control, where that can be bounded
    uint64_t timeouts{0}, recoveries{0};

  private:
    void Begin();
    void End();
    void Plan(double at, uint32_t bytes);
    void Fill();
    void Accept(Ptr<Socket> socket, const Address& from);
    void Receive(Ptr<Socket> socket);
    void Acknowledged(SequenceNumber32 before, SequenceNumber32 now);
    void Measured(Time before, Time now);
    void Changed(TcpSocketState::TcpCongState_t before, TcpSocketState::TcpCongState_t now);
    void AcknowledgeAtOnce(Ptr<Socket> socket);
    uint32_t Segment() const; ///< bytes

    Ptr<Node> m_receiver;
    InetSocketAddress m_to;
    bool m_ecn;
    uint32_t m_quick; ///< segments that are acknowledged each by itself after a pause
    uint32_t m_quickLeft{0};
    Time m_arrived{Seconds(-1)}; ///< the last segment
    double m_length;             ///< of a session, bytes; 0: there are none
    double m_period;             ///< s between two sessions
    double m_first;              ///< s, of the first
    bool m_endless;
    Ptr<TcpSocketBase> m_socket;
    Ptr<Socket> m_listening;
    Ptr<TcpCongestionOps> m_control;
    Ptr<TcpSocketState> m_state;
    uint64_t m_wanted{0}, m_given{0}, m_acked{0}, m_received{0}, m_taken{0};
    uint32_t m_smallest{0}, m_window{0};
    bool m_over{false};
};

} // namespace ns3
