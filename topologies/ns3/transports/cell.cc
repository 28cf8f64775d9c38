// SPDX-License-Identifier: Apache-2.0
#include "cell.h"

#include "access-point.h"

#include "ns3/boolean.h"
#include "ns3/bridge-helper.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/global-value.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-address-helper.h"
#include "ns3/mobility-helper.h"
#include "ns3/pointer.h"
#include "ns3/position-allocator.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simple-channel.h"
#include "ns3/simple-net-device.h"
#include "ns3/simulator.h"
#include "ns3/ssid.h"
#include "ns3/string.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/udp-socket-factory.h"
#include "ns3/uinteger.h"
#include "ns3/wifi-mac-queue.h"
#include "ns3/wifi-mac.h"
#include "ns3/wifi-net-device.h"
#include "ns3/yans-wifi-helper.h"

#include <cmath>
#include <sstream>
#include <stdexcept>

namespace ns3
{

namespace
{

constexpr double LOOK = 0.25;  // s between two samples of a rate
constexpr double CLOSER = 0.5; // s between two looks at a sender, as the middleware of paper 002 has it
constexpr uint16_t PORT = 5000;
constexpr uint32_t ENDLESS = 1 << 20; // bytes that are given to a socket at a time
constexpr double PAUSE = 1;    // s without a segment, after which a receiver is quick again; Linux: its timeout

std::invalid_argument
Wrong(const std::string& what)
{
    return std::invalid_argument(what);
}

} // namespace

Settings::Settings(const char* const* words, size_t count)
{
    for (size_t i = 0; i < count; i++)
    {
        std::string word = words[i];
        auto at = word.find('=');
        if (at == std::string::npos)
        {
            throw Wrong("'" + word + "' gives no value: write name=value");
        }
        m_values[word.substr(0, at)] = word.substr(at + 1);
    }
}

std::string
Settings::Text(const std::string& name, const std::string& otherwise)
{
    auto found = m_values.find(name);
    if (found == m_values.end())
    {
        return otherwise;
    }
    std::string value = found->second;
    m_values.erase(found);
    return value;
}

double
Settings::Number(const std::string& name, double otherwise)
{
    if (!Has(name))
    {
        return otherwise;
    }
    std::string text = Text(name, "");
    char* end;
    double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end || !std::isfinite(value))
    {
        throw Wrong(name + "=" + text + " is no number");
    }
    return value;
}

bool
Settings::Has(const std::string& name) const
{
    return m_values.contains(name);
}

void
Settings::Finish() const
{
    if (!m_values.empty())
    {
        throw Wrong("a cell knows no '" + m_values.begin()->first + "'");
    }
}

CellFlow::CellFlow(std::string name_,
                   Ptr<Node> sender_,
                   Ptr<Node> receiver,
                   Ipv4Address to,
                   uint16_t port,
                   Settings& settings)
    : name(std::move(name_)),
      sender(sender_),
      transport(settings.Text("transport", "ns3::TcpBoundedCubic")),
      start(settings.Number("start", 0)),
      send(settings.Number("send", start)),
      stop(settings.Number("stop", 0)),
      m_receiver(receiver),
      m_to(to, port),
      m_ecn(settings.Number("ecn", 0) != 0),
      m_quick(settings.Number("quick_acks", 0))
{
    double length = settings.Number("length", 0);
    double period = settings.Number("period", 10);
    double first = settings.Number("first", send);
    m_endless = length <= 0;
    if (!m_endless && period <= 0)
    {
        throw Wrong("a session every 0 s is not possible");
    }
    Simulator::Schedule(Seconds(start), &CellFlow::Begin, this);
    if (send > start)
    {
        Simulator::Schedule(Seconds(send), &CellFlow::Fill, this);
    }
    for (double at = first; !m_endless && at < stop; at += period)
    {
        Simulator::Schedule(Seconds(at), &CellFlow::Plan, this, at, static_cast<uint32_t>(length));
    }
    if (stop > 0)
    {
        Simulator::Schedule(Seconds(stop), &CellFlow::End, this);
    }
}

void
CellFlow::Begin()
{
    m_listening = Socket::CreateSocket(m_receiver, TcpSocketFactory::GetTypeId());
    auto ecn = m_ecn ? TcpSocketState::On : TcpSocketState::Off;
    DynamicCast<TcpSocketBase>(m_listening)->SetUseEcn(ecn);
    m_listening->Bind(InetSocketAddress(Ipv4Address::GetAny(), m_to.GetPort()));
    m_listening->Listen();
    m_listening->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                   MakeCallback(&CellFlow::Accept, this));
    m_socket = DynamicCast<TcpSocketBase>(Socket::CreateSocket(sender, TcpSocketFactory::GetTypeId()));
    std::istringstream text(transport);
    ObjectFactory factory;
    text >> factory;
    m_control = factory.Create<TcpCongestionOps>();
    m_socket->SetCongestionControlAlgorithm(m_control);
    m_socket->SetUseEcn(ecn);
    bounded = DynamicCast<TcpBoundedCubic>(m_control);
    m_socket->TraceConnectWithoutContext("HighestRxAck", MakeCallback(&CellFlow::Acknowledged, this));
    m_socket->TraceConnectWithoutContext("LastRTT", MakeCallback(&CellFlow::Measured, this));
    m_socket->TraceConnectWithoutContext("CongState", MakeCallback(&CellFlow::Changed, this));
    m_socket->TraceConnectWithoutContext("CongestionWindow",
                                         Callback<void, uint32_t, uint32_t>([this](uint32_t, uint32_t now) { m_window = now; }));
    m_socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>([this](Ptr<Socket>, uint32_t) { Fill(); }));
    m_socket->SetConnectCallback(Callback<void, Ptr<Socket>>([this](Ptr<Socket>) { Fill(); }),
                                 MakeNullCallback<void, Ptr<Socket>>());
    m_socket->Bind();
    m_socket->Connect(m_to);
}

void
CellFlow::End()
{
    m_over = true;
    if (m_endless)
    {
        m_socket->Close();
    }
}

void
CellFlow::Plan(double at, uint32_t bytes)
{
    m_wanted += bytes;
    sessions.push_back({at, m_wanted});
    Fill();
}

void
CellFlow::Fill()
{
    while (!m_over && Simulator::Now() >= Seconds(send))
    {
        uint64_t left = m_endless ? ENDLESS : m_wanted - m_given;
        uint32_t room = std::min<uint64_t>(left, m_socket->GetTxAvailable());
        if (room == 0)
        {
            return;
        }
        int sent = m_socket->Send(Create<Packet>(room), 0);
        if (sent <= 0)
        {
            return;
        }
        m_given += sent;
    }
}

void
CellFlow::Accept(Ptr<Socket> socket, const Address&)
{
    socket->SetRecvCallback(MakeCallback(&CellFlow::Receive, this));
}

// As Linux does (tcp_event_data_recv, tcp_incr_quickack): who begins again must not wait for an acknowledgement that waits.
void
CellFlow::AcknowledgeAtOnce(Ptr<Socket> socket)
{
    constexpr uint32_t delayed = 2;
    if (Simulator::Now() - m_arrived > Seconds(PAUSE))
    {
        m_quickLeft = m_quick;
    }
    m_arrived = Simulator::Now();
    socket->SetAttribute("DelAckCount", UintegerValue(m_quickLeft > 0 ? 1 : delayed));
    m_quickLeft -= m_quickLeft > 0;
}

void
CellFlow::Receive(Ptr<Socket> socket)
{
    if (m_quick > 0)
    {
        AcknowledgeAtOnce(socket);
    }
    while (auto packet = socket->Recv())
    {
        if (packet->GetSize() == 0)
        {
            return;
        }
        m_received += packet->GetSize();
    }
    for (auto& session : sessions)
    {
        if (session.arrived < 0 && m_received >= session.until)
        {
            session.arrived = Simulator::Now().GetSeconds();
        }
    }
}

void
CellFlow::Acknowledged(SequenceNumber32 before, SequenceNumber32 now)
{
    // The first one acknowledges the SYN.
    m_acked += before.GetValue() == 0 ? now - SequenceNumber32(1) : now - before;
    for (auto& session : sessions)
    {
        if (session.finished < 0 && m_acked >= session.until)
        {
            session.finished = Simulator::Now().GetSeconds();
        }
    }
}

void
CellFlow::Measured(Time, Time now)
{
    uint32_t us = now.GetMicroSeconds();
    if (us > 0)
    {
        m_smallest = m_smallest == 0 ? us : std::min(m_smallest, us);
    }
}

void
CellFlow::Changed(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t now)
{
    timeouts += now == TcpSocketState::CA_LOSS;
    recoveries += now == TcpSocketState::CA_RECOVERY;
}

uint64_t
CellFlow::TakeArrived()
{
    uint64_t bytes = m_received - m_taken;
    m_taken = m_received;
    return bytes;
}

bool
CellFlow::Begun() const
{
    return m_socket != nullptr;
}

Ptr<TcpSocketState>
CellFlow::State() const
{
    return bounded ? bounded->State() : nullptr;
}

uint32_t
CellFlow::SmallestRtt() const
{
    return m_smallest;
}

double
CellFlow::Window() const
{
    UintegerValue segment;
    m_socket->GetAttribute("SegmentSize", segment);
    return static_cast<double>(m_window) / segment.Get();
}

Cell::Cell(Settings& settings)
{
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(static_cast<uint64_t>(settings.Number("seed", 1)));
    GlobalValue::Bind("ChecksumEnabled", BooleanValue(settings.Has("ours_radio")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(settings.Number("segment", 1448)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(settings.Number("window", 1 << 22)));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(settings.Number("window", 1 << 22)));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(settings.Number("initial", 10)));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(settings.Number("delack_ms", 40))));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(Seconds(settings.Number("lifetime", 60))));
    uint32_t stations = settings.Number("stations", 1);
    if (stations < 1 || stations > 200)
    {
        throw Wrong("a cell has 1 to 200 stations");
    }
    m_stations.Create(stations);
    m_ap = CreateObject<Node>();
    m_server = CreateObject<Node>();

    auto channel = YansWifiChannelHelper::Default();
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    std::string standard = settings.Text("standard", "802.11g");
    WifiHelper wifi;
    bool b = standard == "802.11b";
    wifi.SetStandard(b ? WIFI_STANDARD_80211b : WIFI_STANDARD_80211g);
    std::string manager = settings.Text("manager", "ns3::ArfWifiManager");
    std::string data = settings.Text("data", b ? "DsssRate11Mbps" : "ErpOfdmRate54Mbps");
    std::string control = settings.Text("control", b ? "DsssRate2Mbps" : "ErpOfdmRate24Mbps");
    if (manager == "ns3::ConstantRateWifiManager")
    {
        wifi.SetRemoteStationManager(manager, "DataMode", StringValue(data), "ControlMode", StringValue(control));
    }
    else
    {
        wifi.SetRemoteStationManager(manager);
    }
    Ssid name("cell");
    WifiMacHelper mac;
    auto retries = UintegerValue(settings.Number("retries", 7));
    mac.SetType("ns3::StaWifiMac", "Ssid", SsidValue(name), "FrameRetryLimit", retries);
    auto stationDevices = wifi.Install(phy, mac, m_stations);
    mac.SetType("ns3::ApWifiMac", "Ssid", SsidValue(name), "FrameRetryLimit", retries);
    m_radio = wifi.Install(phy, mac, m_ap).Get(0);
    auto queue = [](Ptr<NetDevice> device, uint32_t packets) {
        auto of = DynamicCast<WifiNetDevice>(device)->GetMac()->GetTxopQueue(AC_BE_NQOS);
        of->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, packets));
    };
    queue(m_radio, settings.Number("ap_queue", 256));
    uint32_t below = settings.Number("station_radio", 64); // below the host's own queue, as drivers have it
    for (uint32_t i = 0; i < stations; i++)
    {
        queue(stationDevices.Get(i), below);
    }

    double distance = settings.Number("distance", 5);
    auto places = CreateObject<ListPositionAllocator>();
    for (uint32_t i = 0; i < stations; i++)
    {
        double angle = 2 * M_PI * i / stations;
        places->Add(Vector(distance * std::cos(angle), distance * std::sin(angle), 0));
    }
    places->Add(Vector(0, 0, 0));
    MobilityHelper mobility;
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.SetPositionAllocator(places);
    mobility.Install(m_stations);
    mobility.Install(m_ap);

    auto wire = CreateObject<SimpleChannel>();
    wire->SetAttribute("Delay", TimeValue(MicroSeconds(settings.Number("delay_ms", 4) * 500)));
    auto end = [&](Ptr<Node> node) {
        auto device = CreateObject<SimpleNetDevice>();
        device->SetAttribute("DataRate", StringValue("1Gbps"));
        device->SetAddress(Mac48Address::Allocate());
        device->SetChannel(wire);
        node->AddDevice(device);
        return device;
    };
    auto uplink = end(m_ap);
    auto serverDevice = end(m_server);

    InternetStackHelper internet;
    internet.Install(m_stations);
    internet.Install(m_server);
    // Before addresses are given: they would bring FQ-CoDel, which hosts of the papers' years had not.
    TrafficControlHelper host;
    std::string hostQueue = settings.Text("host_queue", "1000p");
    host.SetRootQueueDisc("ns3::PfifoFastQueueDisc", "MaxSize", StringValue(hostQueue));
    host.Install(stationDevices);
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.0.0");
    NetDeviceContainer all(stationDevices);
    all.Add(serverDevice);
    auto given = addresses.Assign(all);
    for (uint32_t i = 0; i < stations; i++)
    {
        m_addresses.push_back(given.GetAddress(i));
    }
    m_serverAddress = given.GetAddress(stations);

    if (settings.Has("ours_radio"))
    {
        m_ours = CreateObject<AccessPoint>();
        uint32_t held = settings.Number("held", 4);
        m_ours->AddPort(m_radio, settings.Text("ours_radio", ""), held);
        m_ours->AddPort(uplink, settings.Text("ours_uplink", ""));
        if (!m_ours->Start(settings.Text("ours_options", "")))
        {
            throw Wrong(m_ours->GetError());
        }
    }
    else
    {
        NetDeviceContainer both(m_radio);
        both.Add(uplink);
        BridgeHelper().Install(m_ap, both);
    }
    settings.Finish();
    Simulator::Schedule(Seconds(LOOK), &Cell::Look, this);
    Simulator::Schedule(Seconds(CLOSER), &Cell::LookCloser, this);
}

Cell::~Cell()
{
    m_flows.clear();
    m_ours = nullptr;
    Simulator::Destroy();
}

Ptr<Node>
Cell::Station(Settings& settings, uint32_t& number) const
{
    number = settings.Number("station", 1);
    if (number < 1 || number > m_stations.GetN())
    {
        throw Wrong("there is no station " + std::to_string(number));
    }
    return m_stations.Get(number - 1);
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
    m_flows.push_back(std::make_unique<CellFlow>(name,
                                                 up ? station : m_server,
                                                 up ? m_server : station,
                                                 to,
                                                 port,
                                                 settings));
    settings.Finish();
}

void
Cell::AddStream(Settings& settings)
{
    uint32_t number;
    auto station = Station(settings, number);
    bool up = settings.Number("up", 1) != 0;
    auto stream = std::make_unique<CellStream>();
    stream->name = settings.Text("name", "sta" + std::to_string(number));
    stream->bytes = settings.Number("bytes", 1472);
    stream->every = Seconds(stream->bytes * 8 / (settings.Number("mbps", 10) * 1e6));
    stream->stop = settings.Number("stop", 0);
    double start = settings.Number("start", 0);
    settings.Finish();
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
    middleware->SetAttribute("Bandwidth", DoubleValue(settings.Number("bandwidth", 19)));
    middleware->SetAttribute("Exponent", DoubleValue(settings.Number("exponent", 0)));
    middleware->SetAttribute("Turns", BooleanValue(settings.Number("turns", 0) != 0));
    middleware->SetStartTime(Seconds(settings.Number("start", 0)));
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
            double us = state->m_srtt.Get().GetMicroSeconds();
            Keep(now, "rtt_ms", us / 1e3, 0, flow->name);
            Keep(now, "rtt_ratio", cwnd::Ratio(us, flow->SmallestRtt()), 0, flow->name);
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
    Simulator::Stop(Seconds(until) - Simulator::Now());
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

Ptr<AccessPoint>
Cell::Ours() const
{
    return m_ours;
}

} // namespace ns3

// For topologies/ns3/cell.py. Each returns null or false after it has written one line into `error`.
namespace
{

void
Tell(char* error, size_t room, const std::string& line)
{
    auto length = std::min(line.size(), room - 1);
    line.copy(error, length);
    error[length] = 0;
}

} // namespace

extern "C"
{
    ns3::Cell* cell_new(const char* const* words, size_t count, char* error, size_t room)
    {
        try
        {
            ns3::Settings settings(words, count);
            return new ns3::Cell(settings);
        }
        catch (const std::exception& wrong)
        {
            Tell(error, room, wrong.what());
            return nullptr;
        }
    }

    bool cell_add(ns3::Cell* cell, const char* what, const char* const* words, size_t count, char* error, size_t room)
    {
        try
        {
            ns3::Settings settings(words, count);
            std::string kind = what;
            kind == "flow" ? cell->AddFlow(settings) : kind == "stream" ? cell->AddStream(settings)
                                                                        : cell->AddMiddleware(settings);
            return true;
        }
        catch (const std::exception& wrong)
        {
            Tell(error, room, wrong.what());
            return false;
        }
    }

    void cell_run(ns3::Cell* cell, double until)
    {
        cell->Run(until);
    }

    const ns3::CellSample* cell_samples(const ns3::Cell* cell, size_t* count)
    {
        *count = cell->Samples().size();
        return cell->Samples().data();
    }

    uint64_t cell_access_point(const ns3::Cell* cell)
    {
        return cell->Ours() ? cell->Ours()->GetHandle() : 0;
    }

    void cell_error(const ns3::Cell* cell, char* error, size_t room)
    {
        Tell(error, room, cell->Ours() ? cell->Ours()->GetError() : "");
    }

    void cell_free(ns3::Cell* cell)
    {
        delete cell;
    }
}
