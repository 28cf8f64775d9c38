// SPDX-License-Identifier: Apache-2.0
// A terminal behind an access point whose uplink is a modem in a cell of WiMAX, and a server behind its base station.
#include "lab.h"

#include "ns3/bs-net-device.h"
#include "ns3/bs-scheduler-simple.h"
#include "ns3/bs-uplink-scheduler-simple.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-address-helper.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/nstime.h"
#include "ns3/service-flow-record.h"
#include "ns3/simple-channel.h"
#include "ns3/simple-ofdm-wimax-channel.h"
#include "ns3/simple-ofdm-wimax-phy.h"
#include "ns3/ss-net-device.h"
#include "ns3/uinteger.h"
#include "ns3/wimax-helper.h"

#include <algorithm>

using namespace ns3;

namespace
{

/// Of the frame, for the uplink (paper 000, section 4.1.2).
constexpr double SHARE_UP = 0.25;
const char* const HOME = "7.1.0.0";
const char* const RADIO = "7.0.0.0";
const char* const WORLD = "10.0.0.0";
const char* const MASK = "255.255.0.0";

/**
 * ns-3's own halves the frame, and does not serve a request that is larger than what is left of it: a queue that has grown
 * beyond one frame's room would never be served again. And it asks the C library for chance, which no seed of ns-3 sets.
 */
class Uplink : public UplinkSchedulerSimple
{
  public:
    void Schedule() override
    {
        Split();
        UplinkSchedulerSimple::Schedule();
        Split(); // it has halved the frame again
    }

    void GetChannelDescriptorsToUpdate(bool&, bool&, bool& down, bool& up) override
    {
        down = up = m_described.IsZero() || Simulator::Now() - m_described >= GetBs()->GetDcdInterval();
        if (down)
        {
            m_described = Simulator::Now() + NanoSeconds(1);
        }
    }

  private:
    using UplinkSchedulerSimple::ServiceBandwidthRequests;

    void Split()
    {
        auto phy = GetBs()->GetPhy();
        const uint32_t symbols = phy->GetSymbolsPerFrame();
        const auto up = static_cast<uint32_t>(symbols * SHARE_UP);
        GetBs()->SetNrUlSymbols(up - phy->GetRtg() / phy->GetPsPerSymbol());
        GetBs()->SetNrDlSymbols(symbols - up - phy->GetTtg() / phy->GetPsPerSymbol());
    }

    bool ServiceBandwidthRequests(ServiceFlow* flow,
                                  ServiceFlow::SchedulingType,
                                  OfdmUlMapIe& map,
                                  const WimaxPhy::ModulationType modulation,
                                  uint32_t& next,
                                  uint32_t& left) override
    {
        auto record = flow->GetRecord();
        if (record->GetRequestedBandwidth() <= record->GetGrantedBandwidth() || left == 0)
        {
            return true;
        }
        auto phy = GetBs()->GetPhy();
        const uint32_t wanted = record->GetRequestedBandwidth() - record->GetGrantedBandwidth();
        const uint32_t symbols = std::min<uint32_t>(left, phy->GetNrSymbols(wanted, modulation));
        record->UpdateGrantedBandwidth(std::min<uint32_t>(wanted, phy->GetNrBytes(symbols, modulation)));
        AddUplinkAllocation(map, symbols, next, left);
        return true;
    }

    Time m_described;
};

Ptr<Ipv4StaticRouting>
Routes(Ptr<Node> node)
{
    return Ipv4StaticRoutingHelper().GetStaticRouting(node->GetObject<Ipv4>());
}

} // namespace

extern "C"
{
/**
 * One terminal, the access point, the modem; and the server behind the base station.
 *
 * @param queue of each service flow, in the modem and in the base station, packets.
 * @param delay between the base station and the server, one way, s.
 * @param down, up the links of the ports to the terminal and to the modem, as AccessPoint::AddPort() takes them. See
 *     lab_error().
 */
Lab*
wimax_new(uint32_t seed,
          uint32_t queue,
          double delay,
          const char* down,
          const char* up,
          const char* options)
{
    BeginLab(seed);
    Config::SetDefault("ns3::WimaxMacQueue::MaxSize", UintegerValue(queue));
    const auto env = [](const char* n, double d) { const char* v = getenv(n); return v ? atof(v) : d; };
    Config::SetDefault("ns3::WimaxPhy::Bandwidth", UintegerValue(env("WX_BW", 5e6)));
    Config::SetDefault("ns3::SimpleOfdmWimaxPhy::G", DoubleValue(env("WX_G", 0.25)));
    Config::SetDefault("ns3::WimaxPhy::FrameDuration", TimeValue(Seconds(env("WX_F", 0.01))));
    auto lab = new Lab;
    lab->server = CreateObject<Node>();
    lab->stations.push_back(CreateObject<Node>());
    auto terminal = lab->stations[0];
    auto modem = CreateObject<Node>();
    auto mast = CreateObject<Node>();
    auto node = CreateObject<Node>();

    auto air = CreateObject<SimpleOfdmWimaxChannel>(); // without losses
    auto uplink = CreateObject<Uplink>();
    auto downlink = CreateObject<BSSchedulerSimple>();
    auto tower = CreateObject<BaseStationNetDevice>(mast, CreateObject<SimpleOfdmWimaxPhy>(), uplink, downlink);
    uplink->SetBs(tower);
    downlink->SetBs(tower);
    auto radio = CreateObject<SubscriberStationNetDevice>(modem, CreateObject<SimpleOfdmWimaxPhy>());
    radio->SetModulationType(static_cast<WimaxPhy::ModulationType>(static_cast<int>(env("WX_M", WimaxPhy::MODULATION_TYPE_QAM16_12))));
    for (Ptr<WimaxNetDevice> device : {Ptr<WimaxNetDevice>(radio), Ptr<WimaxNetDevice>(tower)})
    {
        device->SetAddress(Mac48Address::Allocate());
        device->GetPhy()->SetDevice(device);
        device->Start();
        device->Attach(air);
        device->GetNode()->AddDevice(device);
    }
    // What goes up first: ns-3 sends what it cannot classify, as an answer before the second flow is there, on the first.
    WimaxHelper helper;
    for (auto direction : {ServiceFlow::SF_DIRECTION_UP, ServiceFlow::SF_DIRECTION_DOWN})
    {
        auto flow = helper.CreateServiceFlow(direction, ServiceFlow::SF_TYPE_BE, IpcsClassifierRecord());
        radio->AddServiceFlow(flow);
    }

    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(NodeContainer(lab->server, terminal, modem, mast));
    auto home = CreateObject<SimpleChannel>();
    auto wire = CreateObject<SimpleChannel>();
    auto world = CreateObject<SimpleChannel>();
    world->SetAttribute("Delay", TimeValue(Seconds(delay)));
    auto below = Plug(node, home);
    auto above = Plug(node, wire);
    NetDeviceContainer inside(Plug(modem, wire));
    inside.Add(Plug(terminal, home));
    NetDeviceContainer outside(Plug(mast, world));
    outside.Add(Plug(lab->server, world));
    NetDeviceContainer between(radio);
    between.Add(tower);
    const auto insides = Ipv4AddressHelper(HOME, MASK).Assign(inside);
    const auto betweens = Ipv4AddressHelper(RADIO, MASK).Assign(between);
    const auto outsides = Ipv4AddressHelper(WORLD, MASK).Assign(outside);
    Routes(terminal)->SetDefaultRoute(insides.GetAddress(0), 1);
    Routes(modem)->SetDefaultRoute(betweens.GetAddress(1), modem->GetObject<Ipv4>()->GetInterfaceForDevice(radio));
    Routes(mast)->AddNetworkRouteTo(
        HOME, MASK, betweens.GetAddress(0), mast->GetObject<Ipv4>()->GetInterfaceForDevice(tower));
    Routes(lab->server)->SetDefaultRoute(outsides.GetAddress(0), 1);

    lab->accessPoint = CreateObject<AccessPoint>();
    lab->accessPoint->AddPort(below, down);
    lab->accessPoint->AddPort(above, up);
    lab->accessPoint->Start(options);
    return lab;
}
}
