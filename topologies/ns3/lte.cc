// SPDX-License-Identifier: Apache-2.0
// A terminal behind an access point whose uplink is a modem in a cell of LTE (LENA), and a server behind its core.
#include "modem.h"

#include "ns3/config.h"
#include "ns3/constant-position-mobility-model.h"
#include "ns3/double.h"
#include "ns3/epc-pgw-application.h"
#include "ns3/lte-helper.h"
#include "ns3/lte-ue-net-device.h"
#include "ns3/point-to-point-epc-helper.h"
#include "ns3/uinteger.h"

using namespace ns3;

namespace
{

/// Paper 000, section 4.1.3.
constexpr uint16_t BLOCKS_DOWN = 50;
constexpr uint16_t BLOCKS_UP = 25;
/// Distance of the modem from the mast, m, and the cell's power, dBm: both directions have I_TBS 24 then, which are 30.6
/// Mb/s of 50 blocks and 15.3 of 25 (3GPP TS 36.213, table 7.1.7.2.1-1), the nearest to the paper's rates.
constexpr double DISTANCE = 1600;
constexpr double POWER = 27;
/// Network of the addresses behind the PGW's tunnels: the modem's address, and the terminal's network.
const char* const BEHIND = "7.0.0.0";
const char* const MASK_BEHIND = "255.0.0.0";

void
Place(Ptr<Node> node, double metres)
{
    auto place = CreateObject<ConstantPositionMobilityModel>();
    place->SetPosition({metres, 0, 0});
    node->AggregateObject(place);
}

} // namespace

extern "C"
{
/**
 * One terminal, the access point, the modem; and the server behind the core.
 *
 * @param queue of each bearer, in the modem and in the cell, bytes.
 * @param delay between the core and the server, one way, s.
 * @param down, up the links of the ports to the terminal and to the modem, as AccessPoint::AddPort() takes them. See
 *     lab_error().
 */
Lab*
lte_new(uint32_t seed, uint32_t queue, double delay, const char* down, const char* up, const char* options)
{
    BeginLab(seed);
    Config::SetDefault("ns3::LteRlcUm::MaxTxBufferSize", UintegerValue(queue));
    Config::SetDefault("ns3::LteEnbPhy::TxPower", DoubleValue(POWER));
    ModemLab lab;
    Place(lab.mast, 0);
    Place(lab.modem, DISTANCE);

    auto core = CreateObject<PointToPointEpcHelper>();
    auto cell = CreateObject<LteHelper>();
    cell->SetEpcHelper(core);
    cell->SetEnbDeviceAttribute("DlBandwidth", UintegerValue(BLOCKS_DOWN));
    cell->SetEnbDeviceAttribute("UlBandwidth", UintegerValue(BLOCKS_UP));
    lab.mast->AggregateObject(cell); // as long as the nodes
    auto tower = cell->InstallEnbDevice(NodeContainer(lab.mast));
    auto radio = cell->InstallUeDevice(NodeContainer(lab.modem));

    lab.InstallStack();
    core->AssignUeIpv4Address(radio);
    cell->Attach(radio, tower.Get(0));

    lab.Connect(core->GetPgwNode(), delay);
    Routes(lab.modem)->SetDefaultRoute(core->GetUeDefaultGatewayAddress(), 1);
    Routes(lab.server)->AddNetworkRouteTo(Ipv4Address(BEHIND), Ipv4Mask(MASK_BEHIND), lab.AddressServer(), 1);
    // The modem is a router: the core sends it what is for the terminal (a framed route, 3GPP TS 29.061, 16.4.7).
    auto gateway = DynamicCast<EpcPgwApplication>(core->GetPgwNode()->GetApplication(0));
    gateway->SetUeAddress(DynamicCast<LteUeNetDevice>(radio.Get(0))->GetImsi(), lab.insides.GetAddress(1));
    return lab.Start(down, up, options);
}
}
