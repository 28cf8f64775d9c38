// SPDX-License-Identifier: Apache-2.0
#include "cell.h"

#include "access-point.h"
#include "asked.h"
#include "lab.h"

#include "ns3/boolean.h"
#include "ns3/bridge-helper.h"
#include "ns3/config.h"
#include "ns3/constant-position-mobility-model.h"
#include "ns3/double.h"
#include "ns3/global-value.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-address-helper.h"
#include "ns3/mobility-helper.h"
#include "ns3/position-allocator.h"
#include "ns3/propagation-delay-model.h"
#include "ns3/simple-net-device.h"
#include "ns3/simulator.h"
#include "ns3/ssid.h"
#include "ns3/string.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/udp-socket-factory.h"
#include "ns3/uinteger.h"
#include "ns3/waypoint-mobility-model.h"
#include "ns3/wifi-mac-queue.h"
#include "ns3/wifi-mac.h"
#include "ns3/wifi-net-device.h"

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace ns3
{

namespace
{

constexpr double LOOK = 0.25;  // s between two samples of a rate
constexpr double CLOSER = 0.5; // s between two looks at a sender, as the middleware of paper 002 has it
constexpr uint16_t PORT = 5000;
constexpr double LEAST = 0.001; // of what is not to be 0
constexpr double MOST = 1e6;    // of what ns-3 has no limit for, and we see no use of
constexpr double OFTEN = 1000;  // ns between two packets of a stream, at least
/// What ns-3 calls the parts of a standard. channels: that do not overlap, of the first access point, of the second, and
/// of nobody.
struct Standard
{
    WifiStandard standard;
    WifiPhyBand band;
    uint16_t width; ///< MHz
    uint8_t channels[3];
    const char *data, *control, *lowest;
    double lowestMbps;
    std::vector<std::string> rates;
};

const std::vector<std::string> DSSS{"DsssRate1Mbps", "DsssRate2Mbps", "DsssRate5_5Mbps", "DsssRate11Mbps"};

std::vector<std::string>
Rates(const std::string& kind, std::vector<std::string> others = {})
{
    for (auto mbps : {6, 9, 12, 18, 24, 36, 48, 54})
    {
        others.push_back(kind + std::to_string(mbps) + "Mbps");
    }
    return others;
}

const std::map<std::string, Standard> STANDARDS{
    {"802.11a",
     {WIFI_STANDARD_80211a, WIFI_PHY_BAND_5GHZ, 20, {36, 40, 44}, "OfdmRate54Mbps", "OfdmRate24Mbps", "OfdmRate6Mbps", 6,
      Rates("OfdmRate")}},
    {"802.11b",
     {WIFI_STANDARD_80211b,
      WIFI_PHY_BAND_2_4GHZ,
      22,
      {1, 6, 11},
      "DsssRate11Mbps",
      "DsssRate2Mbps",
      "DsssRate1Mbps",
      1,
      DSSS}},
    {"802.11g",
     {WIFI_STANDARD_80211g,
      WIFI_PHY_BAND_2_4GHZ,
      20,
      {1, 6, 11},
      "ErpOfdmRate54Mbps",
      "ErpOfdmRate24Mbps",
      "ErpOfdmRate6Mbps",
      6,
      Rates("ErpOfdmRate", DSSS)}},
};

constexpr size_t FIRST = 0, SECOND = 1, NOWHERE = 2; // of a standard's channels
constexpr double BESIDE = 0.5; // m, of who walks from one access point to the other, beside the line between them

std::invalid_argument
Wrong(const std::string& what)
{
    return std::invalid_argument(what);
}

/// A rate that a standard has, of the setting `name`.
std::string
Rate(Settings& settings, const std::string& name, const std::string& standard, const std::string& otherwise)
{
    auto rate = settings.Text(name, otherwise);
    std::string all;
    for (const auto& known : STANDARDS.at(standard).rates)
    {
        if (known == rate)
        {
            return rate;
        }
        all += (all.empty() ? "" : ", ") + known;
    }
    throw Wrong(name + "=" + rate + " is no rate of " + standard + ": give one of " + all);
}

/// A queue's size in packets, as ns-3 takes it: "1000p".
std::string
Packets(Settings& settings, const std::string& name, const std::string& otherwise)
{
    auto text = settings.Text(name, otherwise);
    char* end;
    const double packets = std::strtod(text.c_str(), &end);
    if (text.find_first_not_of("0123456789") != text.size() - 1 || std::string(end) != "p" || packets < 1 ||
        packets > MOST)
    {
        throw Wrong(name + "=" + text + " is no number of packets: give one as 1000p");
    }
    return text;
}

} // namespace

void
Cell::Make(Settings& settings)
{
    Configure(settings);
    const double stations = settings.Number("stations", 1);
    if (stations < 1 || stations > 200)
    {
        throw Wrong("a cell has 1 to 200 stations");
    }
    m_apart = settings.NumberOrNone("apart", LEAST, MOST);
    m_beyond = settings.Number("beyond", 0, 0, stations);
    if (m_beyond >= stations || (m_beyond > 0 && m_apart == 0))
    {
        throw Wrong("stations beyond need a second access point, apart from the first, and one station at that");
    }
    m_stations.Create(stations);
    m_accessPoints.Create(m_apart > 0 ? 2 : 1);
    m_server = CreateObject<Node>();
    MakeRadios(settings);
    Place(settings);
    MakeWire(settings);
    settings.Finish();
    Simulator::Schedule(Seconds(LOOK), &Cell::Look, this);
    Simulator::Schedule(Seconds(CLOSER), &Cell::LookCloser, this);
}

void
Cell::Configure(Settings& settings)
{
    BeginSimulation(static_cast<uint64_t>(settings.Number("seed", 1, 0, 0x1p53)));
    GlobalValue::Bind("ChecksumEnabled", BooleanValue(settings.Has("ours_radio")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(settings.Number("segment", 1448, 100, 65000)));
    uint32_t window = settings.Number("window", 1 << 22, 1000, 1 << 30);
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(window));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(window));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(settings.Number("initial", 10, 1, MOST)));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(settings.Number("delack_ms", 40, 0, MOST))));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(Seconds(settings.Number("lifetime", 60, LEAST, MOST))));
}

Ptr<YansWifiChannel>
Cell::MakeAir(Settings& settings)
{
    auto air = CreateObject<YansWifiChannel>();
    air->SetPropagationDelayModel(CreateObject<ConstantSpeedPropagationDelayModel>());
    auto loss = CreateObject<LogDistancePropagationLossModel>();
    loss->SetAttribute("Exponent", DoubleValue(settings.Number("path_loss", 3, 0, 100)));
    air->SetPropagationLossModel(loss);
    double every = settings.NumberOrNone("burst_every", LEAST, MOST);
    double burst = settings.NumberOrNone("burst_ms", LEAST, MOST);
    if (every > 0 && burst > 0)
    {
        m_bursts = CreateObject<BurstLoss>();
        m_bursts->SetTimes(Seconds(every), MicroSeconds(burst * 1000));
        loss->SetNext(m_bursts);
    }
    return air;
}

void
Cell::MakeRadios(Settings& settings)
{
    YansWifiPhyHelper phy;
    phy.SetChannel(MakeAir(settings));
    double power = settings.Number("power_dbm", 16.0206, -100, 100); // ns-3's, and 802.11's usual 40 mW
    phy.Set("TxPowerStart", DoubleValue(power));
    phy.Set("TxPowerEnd", DoubleValue(power));
    std::string standard = settings.Text("standard", "802.11g");
    auto known = STANDARDS.find(standard);
    if (known == STANDARDS.end())
    {
        throw Wrong("standard=" + standard + " is none of a cell: give 802.11a, 802.11b or 802.11g");
    }
    const auto& of = known->second;
    WifiHelper wifi;
    wifi.SetStandard(of.standard);
    std::string manager = settings.Text("manager", "ns3::ArfWifiManager");
    if (!CanMake(manager, "ns3::WifiRemoteStationManager"))
    {
        throw Wrong("manager=" + manager + " is no rate control of ns-3: give a TypeId as ns3::ArfWifiManager");
    }
    std::string data = Rate(settings, "data", standard, of.data);
    std::string control = Rate(settings, "control", standard, of.control);
    if (manager == "ns3::ConstantRateWifiManager")
    {
        wifi.SetRemoteStationManager(manager, "DataMode", StringValue(data), "ControlMode", StringValue(control));
    }
    else
    {
        wifi.SetRemoteStationManager(manager);
    }
    for (size_t i = 0; i < 3; i++)
    {
        m_channels.emplace_back(of.channels[i], of.width, of.band, 0);
    }
    const std::string band = of.band == WIFI_PHY_BAND_5GHZ ? "BAND_5GHZ" : "BAND_2_4GHZ";
    auto tune = [&](size_t place) {
        const auto channel = std::to_string(of.channels[place]) + ", " + std::to_string(of.width);
        phy.Set("ChannelSettings", StringValue("{" + channel + ", " + band + ", 0}"));
    };
    Ssid name("cell");
    WifiMacHelper mac;
    auto retries = UintegerValue(settings.Number("retries", 7, 1, 65535));
    const uint32_t here = m_stations.GetN() - m_beyond;
    mac.SetType("ns3::StaWifiMac", "Ssid", SsidValue(name), "FrameRetryLimit", retries);
    for (uint32_t i = 0; i < m_stations.GetN(); i++)
    {
        tune(i < here ? FIRST : SECOND);
        m_stationRadios.Add(wifi.Install(phy, mac, m_stations.Get(i)));
    }
    mac.SetType("ns3::ApWifiMac", "Ssid", SsidValue(name), "FrameRetryLimit", retries);
    for (uint32_t i = 0; i < m_accessPoints.GetN(); i++)
    {
        tune(i);
        m_radios.Add(wifi.Install(phy, mac, m_accessPoints.Get(i)));
    }
    auto queue = [](Ptr<NetDevice> device, uint32_t packets) {
        auto of = DynamicCast<WifiNetDevice>(device)->GetMac()->GetTxopQueue(AC_BE_NQOS);
        of->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, packets));
    };
    uint32_t above = settings.Number("ap_queue", 256, 1, MOST);
    for (uint32_t i = 0; i < m_radios.GetN(); i++)
    {
        queue(m_radios.Get(i), above);
    }
    uint32_t below = settings.Number("station_radio", 64, 1, MOST); // below the host's own queue, as drivers have it
    for (uint32_t i = 0; i < m_stationRadios.GetN(); i++)
    {
        queue(m_stationRadios.Get(i), below);
    }
    double share = settings.NumberOrNone("foreign_share", LEAST, 1);
    double far = settings.Number("foreign_distance", 30, 0, MOST);
    for (uint32_t i = 0; share > 0 && i < m_accessPoints.GetN(); i++)
    {
        auto node = CreateObject<Node>();
        tune(i);
        mac.SetType("ns3::AdhocWifiMac");
        wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager", "NonUnicastMode", StringValue(of.lowest));
        auto device = wifi.Install(phy, mac, node).Get(0);
        auto place = CreateObject<ConstantPositionMobilityModel>();
        place->SetPosition(Vector(i * m_apart, far, 0));
        node->AggregateObject(place);
        m_foreign.push_back(CreateObject<ForeignTraffic>());
        m_foreign.back()->Start(device, of.lowestMbps, share);
    }
}

void
Cell::Place(Settings& settings)
{
    double distance = settings.Number("distance", 5, 0, MOST);
    const uint32_t here = m_stations.GetN() - m_beyond;
    auto places = CreateObject<ListPositionAllocator>();
    NodeContainer fixed;
    for (uint32_t i = 0; i < m_stations.GetN(); i++)
    {
        if (i == 0 && m_apart > 0)
        {
            continue; // it moves
        }
        const bool first = i < here;
        double angle = first ? 2 * M_PI * i / here : 2 * M_PI * (i - here) / m_beyond;
        places->Add(Vector(distance * std::cos(angle) + (first ? 0 : m_apart), distance * std::sin(angle), 0));
        fixed.Add(m_stations.Get(i));
    }
    for (uint32_t i = 0; i < m_accessPoints.GetN(); i++)
    {
        places->Add(Vector(i * m_apart, 0, 0));
        fixed.Add(m_accessPoints.Get(i));
    }
    MobilityHelper mobility;
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.SetPositionAllocator(places);
    mobility.Install(fixed);
    if (m_apart > 0)
    {
        PlaceMobile(settings);
    }
    for (uint32_t i = 0; m_bursts && i < m_stations.GetN(); i++)
    {
        m_bursts->AddStation(m_stations.Get(i)->GetObject<MobilityModel>());
    }
}

void
Cell::PlaceMobile(Settings& settings)
{
    double leaves = settings.NumberOrNone("leaves", LEAST, LATEST); // the first access point, in the middle between both
    double outage = settings.Number("outage", 10, LEAST, LATEST);
    double arrives = settings.NumberOrNone("arrives", LEAST, LATEST); // at the second
    if (leaves <= 0 || arrives < leaves + outage + LEAST)
    {
        throw Wrong("a terminal that walks leaves, has no link for some time, and then arrives: give leaves, outage, "
                    "arrives");
    }
    auto walk = CreateObject<WaypointMobilityModel>();
    m_stations.Get(0)->AggregateObject(walk);
    const Vector middle(m_apart / 2, BESIDE, 0);
    walk->AddWaypoint(Waypoint(Seconds(0), Vector(0, BESIDE, 0)));
    walk->AddWaypoint(Waypoint(Seconds(leaves), middle));
    walk->AddWaypoint(Waypoint(Seconds(leaves + outage), middle));
    walk->AddWaypoint(Waypoint(Seconds(arrives), Vector(m_apart, BESIDE, 0)));
    Simulator::Schedule(Seconds(leaves), &Cell::Leave, this);
    Simulator::Schedule(Seconds(leaves + outage), &Cell::Arrive, this);
}

void
Cell::Leave()
{
    auto radio = DynamicCast<WifiNetDevice>(m_stationRadios.Get(0));
    // A channel on which nobody is. The access point is told, as who leaves says so.
    radio->GetPhy()->SetOperatingChannel(m_channels[NOWHERE]);
    auto left = DynamicCast<WifiNetDevice>(m_radios.Get(0))->GetRemoteStationManager();
    left->RecordDisassociated(Mac48Address::ConvertFrom(radio->GetAddress()));
}

void
Cell::Arrive()
{
    DynamicCast<WifiNetDevice>(m_stationRadios.Get(0))->GetPhy()->SetOperatingChannel(m_channels[SECOND]);
}

void
Cell::MakeWire(Settings& settings)
{
    auto wire = CreateObject<SimpleChannel>();
    wire->SetAttribute("Delay", TimeValue(MicroSeconds(settings.Number("delay_ms", 4, 0, MOST) * 500)));
    auto end = [&](Ptr<Node> node) {
        auto device = CreateObject<SimpleNetDevice>();
        device->SetAttribute("DataRate", StringValue("1Gbps"));
        device->SetAddress(Mac48Address::Allocate());
        device->SetChannel(wire);
        node->AddDevice(device);
        return device;
    };
    std::vector<Ptr<NetDevice>> uplinks;
    for (uint32_t i = 0; i < m_accessPoints.GetN(); i++)
    {
        uplinks.push_back(end(m_accessPoints.Get(i)));
    }
    auto serverDevice = end(m_server);

    InternetStackHelper internet;
    internet.Install(m_stations);
    internet.Install(m_server);
    // Before addresses are given: they would bring FQ-CoDel, which hosts of the papers' years had not.
    TrafficControlHelper host;
    std::string hostQueue = Packets(settings, "host_queue", "1000p");
    host.SetRootQueueDisc("ns3::PfifoFastQueueDisc", "MaxSize", StringValue(hostQueue));
    host.Install(m_stationRadios);
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.0.0");
    NetDeviceContainer all(m_stationRadios);
    all.Add(serverDevice);
    auto given = addresses.Assign(all);
    for (uint32_t i = 0; i < m_stations.GetN(); i++)
    {
        m_addresses.push_back(given.GetAddress(i));
    }
    m_serverAddress = given.GetAddress(m_stations.GetN());

    const bool ours = settings.Has("ours_radio");
    uint32_t held = settings.Number("held", 4, 0, MOST);
    std::string radio = settings.Text("ours_radio", "");
    std::string uplink = settings.Text("ours_uplink", "");
    std::string options = settings.Text("ours_options", "");
    for (uint32_t i = 0; i < m_accessPoints.GetN(); i++)
    {
        if (ours)
        {
            auto made = CreateObject<AccessPoint>();
            m_ours.push_back(made);
            made->AddPort(m_radios.Get(i), radio, held);
            made->AddPort(uplinks[i], uplink);
            if (!made->Start(options))
            {
                throw Wrong(made->GetError());
            }
        }
        else
        {
            NetDeviceContainer both(m_radios.Get(i));
            both.Add(uplinks[i]);
            BridgeHelper().Install(m_accessPoints.Get(i), both);
        }
    }
}

Cell::~Cell()
{
    for (auto& foreign : m_foreign)
    {
        foreign->Dispose();
    }
    for (auto& ours : m_ours)
    {
        ours->Dispose();
    }
    // Before what its events and the nodes' callbacks are bound to.
    Simulator::Destroy();
}

Ptr<Node>
Cell::Station(Settings& settings, uint32_t& number) const
{
    number = settings.Number("station", 1, 1, m_stations.GetN());
    return m_stations.Get(number - 1);
}

void
Cell::Add(const std::string& kind, Settings& settings)
{
    if (Simulator::Now().IsStrictlyPositive())
    {
        throw Wrong("the cell has run: add to it before");
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
        throw Wrong("a cell has flows, streams and middlewares: add one of these");
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
    stream->bytes = settings.Number("bytes", 1472, 1, 65000);
    stream->every = Seconds(stream->bytes * 8 / (settings.Number("mbps", 10, LEAST, MOST) * 1e6));
    stream->stop = settings.NumberOrNone("stop", LEAST, LATEST);
    double start = settings.Number("start", 0, 0, LATEST);
    settings.Finish();
    if (stream->every < NanoSeconds(OFTEN))
    {
        throw Wrong("it would send more often than each 1000 ns: give more bytes, or fewer mbps");
    }
    if (stream->stop > 0 && stream->stop <= start)
    {
        throw Wrong("it stops after it started: give a later stop");
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
    middleware->SetAttribute("Bandwidth", DoubleValue(settings.Number("bandwidth", 19, LEAST, MOST)));
    middleware->SetAttribute("Exponent", DoubleValue(settings.Number("exponent", 0, -100, 100)));
    middleware->SetAttribute("Turns", BooleanValue(settings.Number("turns", 0) != 0));
    middleware->SetStartTime(Seconds(settings.Number("start", 0, 0, LATEST)));
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
    const double now = Simulator::Now().GetSeconds();
    if (!(until >= now && until <= LATEST))
    {
        std::ostringstream line;
        line << "time cannot go to " << until << " s: give " << now << " to 1000000 s";
        throw Wrong(line.str());
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
            auto cell = std::make_unique<ns3::Cell>(); // which ends its simulation also when it cannot be
            cell->Make(settings);
            return cell.release();
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
            cell->Add(what, settings);
            return true;
        }
        catch (const std::exception& wrong)
        {
            Tell(error, room, wrong.what());
            return false;
        }
    }

    bool cell_run(ns3::Cell* cell, double until, char* error, size_t room)
    {
        try
        {
            cell->Run(until);
            return true;
        }
        catch (const std::exception& wrong)
        {
            Tell(error, room, wrong.what());
            return false;
        }
    }

    const ns3::CellSample* cell_samples(const ns3::Cell* cell, size_t* count)
    {
        *count = cell->Samples().size();
        return cell->Samples().data();
    }

    /// The handle of the first of ours, the second; 0: there is none.
    uint64_t cell_access_point(const ns3::Cell* cell, size_t index)
    {
        return index < cell->Ours().size() ? cell->Ours()[index]->GetHandle() : 0;
    }

    void cell_error(const ns3::Cell* cell, char* error, size_t room)
    {
        Tell(error, room, "");
        for (const auto& ours : cell->Ours())
        {
            if (!ours->GetError().empty())
            {
                Tell(error, room, ours->GetError());
                return;
            }
        }
    }

    void cell_free(ns3::Cell* cell)
    {
        delete cell;
    }
}
