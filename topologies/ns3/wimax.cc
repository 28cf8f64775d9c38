// SPDX-License-Identifier: Apache-2.0
// A terminal behind an access point whose uplink is a modem in a cell of WiMAX, and a server behind its base station.
#include "modem.h"

#include "ns3/bs-net-device.h"
#include "ns3/bs-scheduler-simple.h"
#include "ns3/bs-uplink-scheduler-simple.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/service-flow-record.h"
#include "ns3/simple-ofdm-wimax-channel.h"
#include "ns3/simple-ofdm-wimax-phy.h"
#include "ns3/ss-net-device.h"
#include "ns3/uinteger.h"
#include "ns3/wimax-helper.h"

#include <cmath>

using namespace ns3;

namespace
{

/// Share of the frame for the uplink (paper 000, section 4.1.2).
constexpr double SHARE_UP = 0.25;
/// A transfer alone, down or up, comes nearest to the paper's rates with these (docs/decisions/0031-wimax.md).
constexpr uint32_t BANDWIDTH = 10'000'000; // Hz
constexpr double GUARD = 0.25;
constexpr auto MODULATION = WimaxPhy::MODULATION_TYPE_QPSK_12;
const Time JOINED = Seconds(1);
const char* const RADIO = "7.0.0.0";

/// Symbols and rates in whole numbers. ns-3's own are quotients of times: a symbol too many has it cut a fragment beyond a
/// packet's end, and a rate that is a bit too low has a burst last into the next one, which is not sent then.
class Phy : public SimpleOfdmWimaxPhy
{
  private:
    static uint64_t
    Block(ModulationType modulation)
    {
        constexpr uint64_t BYTES[] = {12, 24, 36, 48, 72, 96, 108}; // IEEE 802.16-2004, table 215
        return BYTES[modulation];
    }

    uint64_t
    DoGetNrSymbols(uint32_t size, ModulationType modulation) const override
    {
        return (size + Block(modulation) - 1) / Block(modulation);
    }

    uint64_t
    DoGetNrBytes(uint32_t symbols, ModulationType modulation) const override
    {
        return symbols * Block(modulation);
    }

    uint32_t
    DoGetDataRate(ModulationType modulation) const override
    {
        return static_cast<uint32_t>(std::lround(8.0 * Block(modulation) / GetSymbolDuration().GetSeconds()));
    }
};

/// Symbols of a frame that the uplink has, without the gap behind them.
uint32_t
SymbolsUp(Ptr<WimaxPhy> phy)
{
    return static_cast<uint32_t>(phy->GetSymbolsPerFrame() * SHARE_UP) - phy->GetRtg() / phy->GetPsPerSymbol();
}

/// ns-3's own halves the frame, and asks the C library for chance, which no seed of ns-3 sets.
class Uplink : public UplinkSchedulerSimple
{
  public:
    void
    Schedule() override
    {
        Split();
        UplinkSchedulerSimple::Schedule();
        Split(); // it has halved the frame again
    }

    void
    GetChannelDescriptorsToUpdate(bool&, bool&, bool& down, bool& up) override
    {
        down = up = Simulator::Now() < JOINED; // they never change
    }

    void
    AllocateInitialRangingInterval(uint32_t& next, uint32_t& left) override
    {
        const uint32_t size = GetBs()->GetRangReqOppSize();
        const Time since = Simulator::Now() - GetTimeStampIrInterval();
        if (since + GetBs()->GetPhy()->GetFrameDuration() <= GetBs()->GetInitialRangingInterval())
        {
            return;
        }
        SetIsIrIntrvlAllocated(true);
        SetNrIrOppsAllocated(1);
        SetTimeStampIrInterval(Simulator::Now());
        OfdmUlMapIe map;
        map.SetCid(GetBs()->GetBroadcastConnection()->GetCid());
        map.SetUiuc(OfdmUlBurstProfile::UIUC_INITIAL_RANGING);
        AddUplinkAllocation(map, size, next, left);
    }

    void
    SetupServiceFlow(SSRecord* record, ServiceFlow* flow) override
    {
        UplinkSchedulerSimple::SetupServiceFlow(record, flow);
        // In whole ms, which a frame of whole symbols falls short of: every second grant was left out.
        flow->SetUnsolicitedGrantInterval(0);
    }

  private:
    using UplinkSchedulerSimple::ServiceBandwidthRequests;

    bool
    ServiceBandwidthRequests(ServiceFlow* flow,
                             ServiceFlow::SchedulingType,
                             OfdmUlMapIe& map,
                             const WimaxPhy::ModulationType,
                             uint32_t& next,
                             uint32_t& left) override
    {
        if (left > 0 && flow->GetRecord()->GetRequestedBandwidth() > 0)
        {
            AddUplinkAllocation(map, left, next, left);
        }
        return true;
    }

    void
    Split()
    {
        auto phy = GetBs()->GetPhy();
        const uint32_t gaps = (phy->GetTtg() + phy->GetRtg()) / phy->GetPsPerSymbol();
        GetBs()->SetNrUlSymbols(SymbolsUp(phy));
        GetBs()->SetNrDlSymbols(phy->GetSymbolsPerFrame() - SymbolsUp(phy) - gaps);
    }
};

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
wimax_new(uint32_t seed, uint32_t queue, double delay, const char* down, const char* up, const char* options)
{
    BeginLab(seed);
    Config::SetDefault("ns3::WimaxMacQueue::MaxSize", UintegerValue(queue));
    Config::SetDefault("ns3::WimaxPhy::Bandwidth", UintegerValue(BANDWIDTH));
    Config::SetDefault("ns3::SimpleOfdmWimaxPhy::G", DoubleValue(GUARD));
    ModemLab lab;
    auto air = CreateObject<SimpleOfdmWimaxChannel>(); // without losses
    auto uplink = CreateObject<Uplink>();
    auto downlink = CreateObject<BSSchedulerSimple>();
    auto tower = CreateObject<BaseStationNetDevice>(lab.mast, CreateObject<Phy>(), uplink, downlink);
    uplink->SetBs(tower);
    downlink->SetBs(tower);
    auto radio = CreateObject<SubscriberStationNetDevice>(lab.modem, CreateObject<Phy>());
    radio->SetModulationType(MODULATION);
    for (Ptr<WimaxNetDevice> device : {Ptr<WimaxNetDevice>(radio), Ptr<WimaxNetDevice>(tower)})
    {
        device->SetAddress(Mac48Address::Allocate());
        device->GetPhy()->SetDevice(device);
        device->Start();
        device->Attach(air);
        device->GetNode()->AddDevice(device);
    }
    // The uplink's flow is the first: ns-3 sends packets that it cannot classify, as an answer before the second flow is
    // there, on the first.
    // Its grants come by themselves (UGS): a modem of ns-3 asks for no more while its queue is full.
    WimaxHelper helper;
    auto phy = tower->GetPhy();
    const auto grant = phy->GetNrBytes(SymbolsUp(phy) - tower->GetRangReqOppSize(), MODULATION);
    auto upward =
        helper.CreateServiceFlow(ServiceFlow::SF_DIRECTION_UP, ServiceFlow::SF_TYPE_UGS, IpcsClassifierRecord());
    const double rate = grant * 8 / phy->GetFrameDuration().GetSeconds();
    upward.SetMinReservedTrafficRate(static_cast<uint32_t>(rate));
    radio->AddServiceFlow(upward);
    radio->AddServiceFlow(
        helper.CreateServiceFlow(ServiceFlow::SF_DIRECTION_DOWN, ServiceFlow::SF_TYPE_BE, IpcsClassifierRecord()));

    lab.InstallStack(lab.mast);
    lab.Connect(lab.mast, delay);
    NetDeviceContainer between(radio);
    between.Add(tower);
    const auto betweens = Ipv4AddressHelper(RADIO, MASK).Assign(between);
    const auto gateway = lab.AddressServer();
    auto router = lab.modem->GetObject<Ipv4>();
    Routes(lab.modem)->SetDefaultRoute(betweens.GetAddress(1), router->GetInterfaceForDevice(radio));
    // Before the modem has its service flows, the base station would look for one that is not there.
    const auto inward = router->GetInterfaceForDevice(lab.inside.Get(0));
    router->SetForwarding(inward, false);
    Simulator::Schedule(JOINED, &Ipv4::SetForwarding, router, inward, true);
    Routes(lab.mast)->AddNetworkRouteTo(
        HOME, MASK, betweens.GetAddress(0), lab.mast->GetObject<Ipv4>()->GetInterfaceForDevice(tower));
    Routes(lab.server)->SetDefaultRoute(gateway, 1);
    return lab.Start(down, up, options);
}
}
