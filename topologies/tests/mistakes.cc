// SPDX-License-Identifier: Apache-2.0
// Scenes with a mistake each, which the seed names: test_ns3.py knows what is said of them.
#include "lab.h"

#include "ns3/boolean.h"
#include "ns3/global-value.h"
#include "ns3/inet-socket-address.h"
#include "ns3/packet.h"
#include "ns3/point-to-point-helper.h"
#include "ns3/simple-net-device-helper.h"
#include "ns3/simple-net-device.h"
#include "ns3/simulator.h"

using namespace ns3;

namespace
{

void
SendLongFrame(Ptr<NetDevice> device)
{
    device->Send(Create<Packet>(9300), device->GetBroadcast(), 0x0800);
}

} // namespace

extern "C" Lab*
scene(uint32_t mistake)
{
    BeginLab(1);
    auto lab = new Lab;
    NodeContainer nodes(3);
    auto wires = SimpleNetDeviceHelper().Install(nodes);
    auto ap = lab->accessPoint = CreateObject<AccessPoint>();
    switch (mistake)
    {
    case 0:
        return nullptr;
    case 1:
        ap->AddPort(nullptr);
        break;
    case 2:
        ap->AddPort(CreateObject<SimpleNetDevice>());
        break;
    case 3:
        ap->AddPort(PointToPointHelper().Install(nodes.Get(0), nodes.Get(1)).Get(0));
        break;
    case 4:
        ap->AddPort(wires.Get(0));
        ap->AddPort(wires.Get(1));
        break;
    case 5:
        ap->AddPort(wires.Get(0), "", 4);
        break;
    case 6:
        ap->AddPort(wires.Get(0), "rate=fast");
        break;
    case 7:
        GlobalValue::Bind("ChecksumEnabled", BooleanValue(false));
        ap->AddPort(wires.Get(0));
        break;
    case 8:
        ap->AddPort(wires.Get(0));
        ap->Start();
        ap->AddPort(wires.Get(0));
        break;
    case 9:
        break;
    case 11:
        ap->AddPort(wires.Get(0));
        break;
    case 12: // beside one that has its addresses
        lab->server = nodes.Get(0);
        lab->stations = {nodes.Get(1)};
        GiveAddresses(*lab, {wires.Get(0), wires.Get(1)});
        return nullptr;
    case 13:
        lab->server = nodes.Get(0);
        lab->stations = {nodes.Get(1)};
        lab->accessPoint = nullptr;
        return lab;
    case 10:
        wires.Get(1)->SetMtu(9500);
        ap->AddPort(wires.Get(0));
        Simulator::Schedule(Seconds(1), SendLongFrame, wires.Get(1));
        break;
    }
    ap->Start(mistake == 11 ? "--no-such-option" : "");
    return lab;
}
