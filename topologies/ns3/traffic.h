// SPDX-License-Identifier: Apache-2.0
// Traffic of a lab's hosts: TCP at full speed, and probes of the round trip. Both keep their measurements.
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "ns3/event-id.h"
#include "ns3/ipv4-address.h"
#include "ns3/node.h"
#include "ns3/nstime.h"
#include "ns3/object.h"
#include "ns3/socket.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ns3
{

/** From now until then; never less than 0, as a time in s may be rounded to below the one that it was made from. */
Time Until(Time then);

/** Options of a transfer. Times are of the simulation. */
struct TransferOptions
{
    Time start;
    /** From then on nothing more is handed to the sockets; what they have is still sent. */
    Time stop;
    /** Congestion control of the sender, by the name of its TypeId: "ns3::TcpCubic". */
    std::string congestion;
    bool ecn = true;
    /** Connections, side by side. */
    uint32_t streams = 1;
    /** Size of the sockets' buffers, bytes; 0: ns-3's defaults. */
    uint32_t window = 0;
    /** Octets to send on each connection, then it is closed; 0: as much as goes. */
    uint64_t bytes = 0;
    uint16_t port = 0;
    /** Interval of the counts; not 0. */
    Time interval;
};

/** TCP from one host to another; what arrives is counted by interval, from the simulation's start. */
class Transfer : public Object
{
  public:
    static TypeId GetTypeId();

    /** `address`: the receiver's. Raises nothing; GetError() says what is wrong. */
    void Start(Ptr<Node> sender, Ptr<Node> receiver, Ipv4Address address, const TransferOptions& options);
    std::string GetError() const;

    /** Connections; none before Start(). */
    uint32_t GetStreams() const;
    /** Octets that arrived on connection `stream`, in each interval. */
    const std::vector<uint64_t>& GetArrived(uint32_t stream) const;
    /** The sender's socket of a connection; null before it starts. Its traces are ns-3's. */
    Ptr<Socket> GetSocket(uint32_t stream) const;
    /** Time at which all `bytes` of a connection had arrived; 0: not yet. */
    Time GetFinished(uint32_t stream) const;

  protected:
    void DoDispose() override;

  private:
    struct Stream
    {
        Ptr<Socket> sender;
        uint64_t sent = 0;
        /** The congestion window, octets. */
        uint32_t window = 0;
        uint64_t total = 0;
        std::vector<uint64_t> arrived;
        Time finished;
    };

    void Connect(uint32_t stream);
    void Accept(uint32_t stream, Ptr<Socket> socket, const Address& from);
    void Fill(uint32_t stream, Ptr<Socket> socket, uint32_t available);
    void SeeWindow(uint32_t stream, uint32_t before, uint32_t now);
    void Read(uint32_t stream, Ptr<Socket> socket);
    void Stop();
    void Configure(Ptr<Socket> socket) const;

    Ptr<Node> m_sender;
    Ptr<Node> m_receiver;
    Ipv4Address m_address;
    TransferOptions m_options;
    std::vector<Stream> m_streams;
    std::vector<Ptr<Socket>> m_sockets;
    std::string m_error;
    bool m_stopped = false;
};

/** A probe of the round trip between two hosts, over UDP, at a steady rate. */
class RoundTripProbe : public Object
{
  public:
    /** Times of one probe that was answered; seconds. */
    struct Answer
    {
        double sent;
        double trip;
        double up;
        double down;
    };

    static TypeId GetTypeId();
    /** `address`: the server's. */
    void Start(Ptr<Node> station, Ptr<Node> server, Ipv4Address address, uint16_t port, Time start, Time interval);
    const std::vector<Answer>& GetAnswers() const;
    uint32_t GetSent() const;

  protected:
    void DoDispose() override;

  private:
    void Send();
    void Reflect(Ptr<Socket> socket);
    void Take(Ptr<Socket> socket);

    Ptr<Socket> m_station;
    Ptr<Socket> m_server;
    Time m_interval;
    EventId m_next;
    uint32_t m_sent = 0;
    std::vector<Answer> m_answers;
};

} // namespace ns3

#endif
