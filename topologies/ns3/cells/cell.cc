// SPDX-License-Identifier: Apache-2.0
#include "cell.h"

#include "access-point.h"
#include "lab.h"
#include "option_check.h"

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
#include "ns3/uinteger.h"
#include "ns3/waypoint-mobility-model.h"
#include "ns3/wifi-mac-queue.h"
#include "ns3/wifi-mac.h"
#include "ns3/wifi-net-device.h"

#include <cmath>
#include <cstdlib>

namespace ns3
{

namespace
{

/// Names that ns-3 has for the parts of a standard. channels: without overlap, of the first access point, of the second,
/// and of nobody.
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
     {WIFI_STANDARD_80211a,
      WIFI_PHY_BAND_5GHZ,
      20,
      {36, 40, 44},
      "OfdmRate54Mbps",
      "OfdmRate24Mbps",
      "OfdmRate6Mbps",
      6,
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
    throw SettingError(name + "=" + rate + " is no rate of " + standard + ": give one of " + all);
}

/// A queue's size in packets, as ns-3 takes it: "1000p".
std::string
Packets(Settings& settings, const std::string& name, const std::string& otherwise)
{
    auto text = settings.Text(name, otherwise);
    char* end;
    const double packets = std::strtod(text.c_str(), &end);
    if (text.find_first_not_of("0123456789") != text.size() - 1 || std::string(end) != "p" || packets < 1 ||
        packets > MAX_SETTING)
    {
        throw SettingError(name + "=" + text + " is no number of packets: give one as 1000p");
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
        throw SettingError("a cell has 1 to 200 stations");
    }
    m_apart = settings.NumberOrNone("apart", MIN_SETTING, MAX_SETTING);
    m_beyond = settings.Whole("beyond", 0, 0, stations);
    if (m_beyond >= stations || (m_beyond > 0 && m_apart == 0))
    {
        throw SettingError("stations beyond need a second access point, apart from the first, and one station at that");
    }
    m_stations.Create(static_cast<uint32_t>(stations));
    m_accessPoints.Create(m_apart > 0 ? 2 : 1);
    m_server = CreateObject<Node>();
    MakeRadios(settings);
    Place(settings);
    MakeWire(settings);
    settings.Finish();
    ScheduleLooks();
}

void
Cell::Configure(Settings& settings)
{
    BeginSimulation(static_cast<uint64_t>(settings.Number("seed", 1, 0, 0x1p53)));
    GlobalValue::Bind("ChecksumEnabled", BooleanValue(settings.Has("ours_radio")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(settings.Whole("segment", 1448, 100, 65000)));
    uint32_t window = settings.Whole("window", 1 << 22, 1000, 1 << 30);
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(window));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(window));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(settings.Whole("initial", 10, 1, MAX_SETTING)));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout",
                       TimeValue(MilliSeconds(settings.Whole("delack_ms", 40, 0, MAX_SETTING))));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay",
                       TimeValue(Seconds(settings.Number("lifetime", 60, MIN_SETTING, MAX_SETTING))));
}

Ptr<YansWifiChannel>
Cell::MakeAir(Settings& settings)
{
    auto air = CreateObject<YansWifiChannel>();
    air->SetPropagationDelayModel(CreateObject<ConstantSpeedPropagationDelayModel>());
    auto loss = CreateObject<LogDistancePropagationLossModel>();
    loss->SetAttribute("Exponent", DoubleValue(settings.Number("path_loss", 3, 0, 100)));
    air->SetPropagationLossModel(loss);
    double every = settings.NumberOrNone("burst_every", MIN_SETTING, MAX_SETTING);
    double burst = settings.NumberOrNone("burst_ms", MIN_SETTING, MAX_SETTING);
    if (every > 0 && burst > 0)
    {
        m_bursts = CreateObject<BurstLoss>();
        m_bursts->SetTimes(Seconds(every), MicroSeconds(static_cast<uint64_t>(burst * 1000)));
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
        throw SettingError("standard=" + standard + " is none of a cell: give 802.11a, 802.11b or 802.11g");
    }
    const auto& of = known->second;
    WifiHelper wifi;
    wifi.SetStandard(of.standard);
    std::string manager = settings.Text("manager", "ns3::ArfWifiManager");
    if (!CanMake(manager, "ns3::WifiRemoteStationManager"))
    {
        throw SettingError("manager=" + manager + " is no rate control of ns-3: give a TypeId as ns3::ArfWifiManager");
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
    auto retries = UintegerValue(settings.Whole("retries", 7, 1, 65535));
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
        return of;
    };
    uint32_t above = settings.Whole("ap_queue", 256, 1, MAX_SETTING);
    for (uint32_t i = 0; i < m_radios.GetN(); i++)
    {
        auto of = queue(m_radios.Get(i), above);
        of->TraceConnectWithoutContext("Enqueue", MakeCallback(&Cell::Enqueued, this));
        of->TraceConnectWithoutContext("Dequeue", MakeCallback(&Cell::Dequeued, this));
    }
    // Below the host's own queue, as drivers have it.
    uint32_t below = settings.Whole("station_radio", 64, 1, MAX_SETTING);
    for (uint32_t i = 0; i < m_stationRadios.GetN(); i++)
    {
        queue(m_stationRadios.Get(i), below);
    }
    double share = settings.NumberOrNone("foreign_share", MIN_SETTING, 1);
    double far = settings.Number("foreign_distance", 30, 0, MAX_SETTING);
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
    double distance = settings.Number("distance", 5, 0, MAX_SETTING);
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
    // A station leaves the first access point, in the middle between both, and arrives at the second.
    double leaves = settings.NumberOrNone("leaves", MIN_SETTING, MAX_TIME);
    double outage = settings.Number("outage", 10, MIN_SETTING, MAX_TIME);
    double arrives = settings.NumberOrNone("arrives", MIN_SETTING, MAX_TIME);
    if (leaves <= 0 || arrives < leaves + outage + MIN_SETTING)
    {
        throw SettingError("a terminal that walks leaves, has no link for some time, and then arrives: give leaves, "
                           "outage, arrives");
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

Ptr<SimpleChannel>
Cell::MakeChannel(Settings& settings)
{
    const Time delay = MicroSeconds(static_cast<uint64_t>(settings.Number("delay_ms", 4, 0, MAX_SETTING) * 500));
    const double every = settings.NumberOrNone("pipes_every", MIN_SETTING, MAX_SETTING);
    if (every == 0)
    {
        auto wire = CreateObject<SimpleChannel>();
        wire->SetAttribute("Delay", TimeValue(delay));
        return wire;
    }
    auto pipes = CreateObject<Pipes>();
    pipes->SetInterval(Seconds(every));
    const uint32_t stations = m_stationRadios.GetN();
    for (uint32_t i = 0; i < stations; i++)
    {
        // Means from half of the delay to one and a half, which are the delay on average.
        const double part = stations > 1 ? 0.5 + static_cast<double>(i) / (stations - 1) : 1;
        pipes->AddStation(Mac48Address::ConvertFrom(m_stationRadios.Get(i)->GetAddress()), delay * int64x64_t(part));
    }
    return pipes;
}

void
Cell::MakeWire(Settings& settings)
{
    auto wire = MakeChannel(settings);
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
    uint32_t held = settings.Whole("held", 4, 0, MAX_SETTING);
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
                throw SettingError(made->GetError());
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

} // namespace ns3
