// SPDX-License-Identifier: Apache-2.0
// Traffic of a cell (cell.h), and its measurements.
#include "cell.h"

#include "option_check.h"
#include "traffic.h"

#include "ns3/boolean.h"
#include "ns3/double.h"
#include "ns3/ipv4-header.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/llc-snap-header.h"
#include "ns3/simulator.h"
#include "ns3/tcp-header.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/udp-socket-factory.h"
#include "ns3/wifi-mpdu.h"

#include <sstream>

namespace ns3
{

namespace
{

constexpr double LOOK = 0.25;  // s between two samples of a rate
constexpr double CLOSER = 0.5; // s between two looks at a sender, as the middleware of paper 002 has it
constexpr uint16_t PORT = 5000;
constexpr double OFTEN = 1000; // ns between two packets of a stream, at least

} // namespace

Ptr<Node>
Cell::Station(Settings& settings, uint32_t& number) const
{
    number = settings.Whole("station", 1, 1, m_stations.GetN());
    return m_stations.Get(number - 1);
}

void
Cell::Add(const std::string& kind, Settings& settings)
{
    if (Simulator::Now().IsStrictlyPositive())
    {
        throw SettingError("the cell has run: add to it before");
    }
    if (kind == "flow")
    {
        AddFlow(settings);
    }
    else if (kind == "stream")
    {
        AddStream(settings);
    }
    else if (kind == "middleware")
    {
        AddMiddleware(settings);
    }
    else
    {
        throw SettingError("a cell has flows, streams and middlewares: add one of these");
    }
}

void
Cell::AddFlow(Settings& settings)
{
    uint32_t number;
    auto station = Station(settings, number);
    bool up = settings.Number("up", 1) != 0;
    auto name = settings.Text("name", "sta" + std::to_string(number));
    uint16_t port = PORT + m_flows.size();
    auto to = up ? m_serverAddress : m_addresses[number - 1];
    auto flow = std::make_unique<CellFlow>(name, up ? station : m_server, up ? m_server : station, to, port, settings);
    settings.Finish();
    flow->Schedule();
    m_flows.push_back(std::move(flow));
}

void
Cell::AddStream(Settings& settings)
{
    uint32_t number;
    auto station = Station(settings, number);
    bool up = settings.Number("up", 1) != 0;
    auto stream = std::make_unique<CellStream>();
    stream->name = settings.Text("name", "sta" + std::to_string(number));
    stream->bytes = settings.Whole("bytes", 1472, 1, 65000);
    stream->every = Seconds(stream->bytes * 8 / (settings.Number("mbps", 10, MIN_SETTING, MAX_SETTING) * 1e6));
    stream->stop = settings.NumberOrNone("stop", MIN_SETTING, MAX_TIME);
    double start = settings.Number("start", 0, 0, MAX_TIME);
    settings.Finish();
    if (stream->every < NanoSeconds(OFTEN))
    {
        throw SettingError("it would send more often than each 1000 ns: give more bytes, or fewer mbps");
    }
    if (stream->stop > 0 && stream->stop <= start)
    {
        throw SettingError("it stops after it started: give a later stop");
    }
    uint16_t port = PORT + m_streams.size();
    stream->from = Socket::CreateSocket(up ? station : m_server, UdpSocketFactory::GetTypeId());
    stream->from->Connect(InetSocketAddress(up ? m_serverAddress : m_addresses[number - 1], port));
    stream->to = Socket::CreateSocket(up ? m_server : station, UdpSocketFactory::GetTypeId());
    stream->to->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    auto* here = stream.get();
    stream->to->SetRecvCallback(Callback<void, Ptr<Socket>>([this, here](Ptr<Socket> socket) { Take(here, socket); }));
    Simulator::Schedule(Seconds(start), &Cell::Send, this, here);
    m_streams.push_back(std::move(stream));
}

void
Cell::Send(CellStream* stream)
{
    if (stream->stop > 0 && Simulator::Now().GetSeconds() >= stream->stop)
    {
        return;
    }
    stream->from->Send(Create<Packet>(stream->bytes));
    Simulator::Schedule(stream->every, &Cell::Send, this, stream);
}

void
Cell::Take(CellStream* stream, Ptr<Socket> socket)
{
    while (auto packet = socket->Recv())
    {
        stream->arrived += packet->GetSize();
    }
}

void
Cell::AddMiddleware(Settings& settings)
{
    uint32_t number;
    auto station = Station(settings, number);
    auto middleware = CreateObject<CwndMiddleware>();
    middleware->SetAttribute("Bandwidth", DoubleValue(settings.Number("bandwidth", 19, MIN_SETTING, MAX_SETTING)));
    middleware->SetAttribute("Exponent", DoubleValue(settings.Number("exponent", 0, -100, 100)));
    middleware->SetAttribute("Turns", BooleanValue(settings.Number("turns", 0) != 0));
    middleware->SetStartTime(Seconds(settings.Number("start", 0, 0, MAX_TIME)));
    settings.Finish();
    station->AddApplication(middleware);
    for (auto& flow : m_flows)
    {
        if (flow->sender == station)
        {
            auto* here = flow.get();
            Simulator::Schedule(Seconds(flow->start) + NanoSeconds(1), [middleware, here] {
                if (here->bounded)
                {
                    middleware->Follow(here->bounded);
                }
            });
        }
    }
}

void
Cell::Keep(double time, const std::string& quantity, double value, double span, const std::string& source)
{
    auto known = [this](const std::string& text) {
        auto found = m_known.find(text);
        if (found == m_known.end())
        {
            m_names.push_back(text);
            found = m_known.emplace(text, m_names.back().c_str()).first;
        }
        return found->second;
    };
    m_samples.push_back({time, value, span, known(quantity), known(source)});
}

std::optional<std::pair<size_t, uint32_t>>
Cell::Opening(Ptr<const WifiMpdu> frame) const
{
    auto packet = frame->GetPacket()->Copy();
    LlcSnapHeader link;
    packet->RemoveHeader(link);
    Ipv4Header network;
    if (link.GetType() != Ipv4L3Protocol::PROT_NUMBER || packet->RemoveHeader(network) == 0 ||
        network.GetProtocol() != TcpL4Protocol::PROT_NUMBER)
    {
        return {};
    }
    TcpHeader transport;
    packet->RemoveHeader(transport);
    const size_t flow = transport.GetDestinationPort() - PORT;
    const uint32_t sequence = transport.GetSequenceNumber().GetValue();
    if (packet->GetSize() == 0 || flow >= m_flows.size() || !m_flows[flow]->Opens(sequence))
    {
        return {};
    }
    return std::make_pair(flow, sequence);
}

void
Cell::Enqueued(Ptr<const WifiMpdu> frame)
{
    if (auto opening = Opening(frame))
    {
        m_waiting.emplace(*opening, Simulator::Now().GetSeconds());
    }
}

// Once its station has acknowledged the frame, or all retries are over. What is sent again does not count again.
void
Cell::Dequeued(Ptr<const WifiMpdu> frame)
{
    const auto opening = Opening(frame);
    if (!opening)
    {
        return;
    }
    const auto found = m_waiting.find(*opening);
    if (found != m_waiting.end() && found->second >= 0)
    {
        const double waited = Simulator::Now().GetSeconds() - found->second;
        Keep(found->second, "first_wait_ms", 1e3 * waited, 0, m_flows[opening->first]->name);
        found->second = -1;
    }
}

void
Cell::ScheduleLooks()
{
    Simulator::Schedule(Seconds(LOOK), &Cell::Look, this);
    Simulator::Schedule(Seconds(CLOSER), &Cell::LookCloser, this);
}

void
Cell::Look()
{
    double now = Simulator::Now().GetSeconds();
    for (auto& flow : m_flows)
    {
        if (flow->Begun())
        {
            Keep(now - LOOK / 2, "rate_mbps", flow->TakeArrived() * 8e-6 / LOOK, LOOK, flow->name);
        }
    }
    for (auto& stream : m_streams)
    {
        Keep(now - LOOK / 2, "rate_mbps", stream->arrived * 8e-6 / LOOK, LOOK, stream->name);
        stream->arrived = 0;
    }
    Simulator::Schedule(Seconds(LOOK), &Cell::Look, this);
}

void
Cell::LookCloser()
{
    double now = Simulator::Now().GetSeconds();
    for (auto& flow : m_flows)
    {
        auto state = flow->State();
        if (flow->Begun() && state && flow->SmallestRtt() > 0)
        {
            auto us = static_cast<uint32_t>(state->m_srtt.Get().GetMicroSeconds());
            Keep(now, "rtt_ms", us / 1e3, 0, flow->name);
            Keep(now, "rtt_ratio", cwnd_ratio(us, flow->SmallestRtt()), 0, flow->name);
            Keep(now, "min_rtt_ms", flow->SmallestRtt() / 1e3, 0, flow->name);
            Keep(now, "cwnd", state->GetCwndInSegments(), 0, flow->name);
            Keep(now, "recovering", state->m_congState == TcpSocketState::CA_RECOVERY, 0, flow->name);
        }
        else if (flow->Begun() && !state && flow->SmallestRtt() > 0)
        {
            Keep(now, "cwnd", flow->Window(), 0, flow->name);
        }
    }
    Simulator::Schedule(Seconds(CLOSER), &Cell::LookCloser, this);
}

void
Cell::Run(double until)
{
    const double now = Simulator::Now().GetSeconds();
    if (!(until >= now && until <= MAX_TIME))
    {
        std::ostringstream line;
        line << "time cannot go to " << until << " s: give " << now << " to 1000000 s";
        throw SettingError(line.str());
    }
    Simulator::Stop(Until(Seconds(until)));
    Simulator::Run();
    for (auto& flow : m_flows)
    {
        for (const auto& session : flow->sessions)
        {
            bool ended = session.finished >= 0;
            double time = ended ? session.finished - session.start : until - session.start;
            Keep(session.start, ended ? "session_s" : "unfinished_s", time, 0, flow->name);
            if (ended && session.arrived >= 0)
            {
                Keep(session.start, "response_s", session.arrived - session.start, 0, flow->name);
            }
        }
        Keep(until, "timeouts", flow->timeouts, 0, flow->name);
        Keep(until, "recoveries", flow->recoveries, 0, flow->name);
    }
}

const std::vector<CellSample>&
Cell::Samples() const
{
    return m_samples;
}

const std::vector<Ptr<AccessPoint>>&
Cell::Ours() const
{
    return m_ours;
}

} // namespace ns3
