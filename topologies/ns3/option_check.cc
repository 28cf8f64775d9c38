// SPDX-License-Identifier: Apache-2.0
#include "option_check.h"

#include "ns3/string.h"
#include "ns3/type-id.h"

#include <cstdlib>
#include <set>
#include <sstream>

using namespace ns3;

namespace
{

/// Check that the text is a time: ns-3 ends the process over another unit.
bool
IsTime(const std::string& text)
{
    static const std::set<std::string> units{"", "s", "ms", "us", "ns", "ps", "fs", "min", "h", "d", "y"};
    char* end;
    std::strtod(text.c_str(), &end);
    return end != text.c_str() && units.contains(end);
}

bool
IsNumber(const std::string& text, bool whole)
{
    char* end;
    whole ? static_cast<void>(std::strtoll(text.c_str(), &end, 10))
          : static_cast<void>(std::strtod(text.c_str(), &end));
    return end != text.c_str() && *end == 0;
}

/// Check that the text is one of an enumeration's: "A|B|C".
bool
IsOneOf(const std::string& text, const std::string& all)
{
    return ("|" + all + "|").find("|" + text + "|") != std::string::npos;
}

/// Check that an attribute takes this text. Attributes other than numbers, times or names take none.
bool
Takes(Ptr<const AttributeChecker> checker, const std::string& text)
{
    const auto kind = checker->GetValueTypeName();
    bool written = false;
    if (kind == "ns3::DoubleValue")
    {
        written = IsNumber(text, false);
    }
    else if (kind == "ns3::IntegerValue" || kind == "ns3::UintegerValue")
    {
        written = IsNumber(text, true) && (kind == "ns3::IntegerValue" || text.find('-') == std::string::npos);
    }
    else if (kind == "ns3::TimeValue")
    {
        written = IsTime(text);
    }
    else if (kind == "ns3::BooleanValue")
    {
        written = IsOneOf(text, "true|false|0|1");
    }
    else if (kind.starts_with("ns3::EnumValue"))
    {
        written = IsOneOf(text, checker->GetUnderlyingTypeInformation());
    }
    return written && checker->CreateValidValue(StringValue(text));
}

} // namespace

bool
CanMake(const std::string& name, const std::string& parent)
{
    TypeId type;
    return TypeId::LookupByNameFailSafe(name, &type) && type.IsChildOf(TypeId::LookupByName(parent)) &&
           type.HasConstructor();
}

std::string
WrongCongestionControl(const std::string& text)
{
    const auto bracket = text.find('[');
    const auto name = text.substr(0, bracket);
    if (!CanMake(name, "ns3::TcpCongestionOps"))
    {
        return "there is no congestion control " + name + " in ns-3: give a TypeId as ns3::TcpCubic";
    }
    if (bracket == std::string::npos)
    {
        return "";
    }
    if (text.find(']') != text.size() - 1)
    {
        return "the congestion control " + text + " has no ] at its end: write it as ns3::TcpCubic[Beta=0.5]";
    }
    const auto type = TypeId::LookupByName(name);
    std::istringstream attributes(text.substr(bracket + 1, text.size() - bracket - 2));
    for (std::string attribute; std::getline(attributes, attribute, '|');)
    {
        const auto equal = attribute.find('=');
        TypeId::AttributeInformation found;
        if (equal == std::string::npos || !type.LookupAttributeByName(attribute.substr(0, equal), &found) ||
            !Takes(found.checker, attribute.substr(equal + 1)))
        {
            return name + " has no attribute that takes " + attribute + ": give those that it has, as [Beta=0.5]";
        }
    }
    return "";
}
