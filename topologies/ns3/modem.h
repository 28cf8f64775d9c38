// SPDX-License-Identifier: Apache-2.0
// A terminal behind an access point whose uplink is a modem in a cell (lte.cc, wimax.cc), and a server behind the cell.
#ifndef MODEM_H
#define MODEM_H

#include "lab.h"

#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-address-helper.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/nstime.h"

/** Network of the terminal and the modem. */
inline const char* const HOME = "7.1.0.0";
/** Network of the server. */
inline const char* const WORLD = "10.0.0.0";
inline const char* const MASK = "255.255.0.0";

inline ns3::Ptr<ns3::Ipv4StaticRouting>
Routes(ns3::Ptr<ns3::Node> node)
{
    return ns3::Ipv4StaticRoutingHelper().GetStaticRouting(node->GetObject<ns3::Ipv4>());
}

/** All but the cell. Nodes, wires and addresses are made in this order: what has a number, gets it by that. */
struct ModemLab
{
    Lab* lab = new Lab;
    ns3::Ptr<ns3::Node> server = lab->server = ns3::CreateObject<ns3::Node>();
    ns3::Ptr<ns3::Node> terminal = lab->stations.emplace_back(ns3::CreateObject<ns3::Node>());
    ns3::Ptr<ns3::Node> modem = ns3::CreateObject<ns3::Node>();
    ns3::Ptr<ns3::Node> mast = ns3::CreateObject<ns3::Node>();
    ns3::Ptr<ns3::Node> node = ns3::CreateObject<ns3::Node>(); ///< The access point's.
    ns3::NetDeviceContainer ports;                             ///< To the terminal, to the modem.
    ns3::NetDeviceContainer inside;                            ///< Of the modem and the terminal.
    ns3::NetDeviceContainer outside;                           ///< Of the gateway and the server.
    ns3::Ipv4InterfaceContainer insides;

    /** IP on the hosts and the modem, and on what else routes. */
    void
    InstallStack(const ns3::NodeContainer& others = {})
    {
        ns3::InternetStackHelper stack;
        stack.SetIpv6StackInstall(false);
        ns3::NodeContainer nodes(server, terminal, modem);
        nodes.Add(others);
        stack.Install(nodes);
    }

    /** Wires to the access point, with addresses, and the one from the cell's gateway to the server, of this delay in s. */
    void
    Connect(ns3::Ptr<ns3::Node> gateway, double delay)
    {
        auto home = ns3::CreateObject<ns3::SimpleChannel>();
        auto wire = ns3::CreateObject<ns3::SimpleChannel>();
        auto world = ns3::CreateObject<ns3::SimpleChannel>();
        world->SetAttribute("Delay", ns3::TimeValue(ns3::Seconds(delay)));
        ports.Add(Plug(node, home));
        ports.Add(Plug(node, wire));
        inside.Add(Plug(modem, wire));
        inside.Add(Plug(terminal, home));
        outside.Add(Plug(gateway, world));
        outside.Add(Plug(server, world));
        insides = ns3::Ipv4AddressHelper(HOME, MASK).Assign(inside);
        Routes(terminal)->SetDefaultRoute(insides.GetAddress(0), 1);
    }

    /** Addresses of the server and its gateway; returns the gateway's. */
    ns3::Ipv4Address
    AddressServer() const
    {
        return ns3::Ipv4AddressHelper(WORLD, MASK).Assign(outside).GetAddress(0);
    }

    /** Starts the switch. down, up: as AccessPoint::AddPort() takes them. */
    Lab*
    Start(const char* down, const char* up, const char* options) const
    {
        lab->accessPoint = ns3::CreateObject<ns3::AccessPoint>();
        lab->accessPoint->AddPort(ports.Get(0), down);
        lab->accessPoint->AddPort(ports.Get(1), up);
        lab->accessPoint->Start(options);
        return lab;
    }
};

#endif
