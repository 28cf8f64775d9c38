// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <cmath>
#include <cstdlib>
#include <sstream>

namespace ns3
{

namespace
{

std::string
Written(double number)
{
    std::ostringstream text;
    text.precision(16);
    text << number;
    return text.str();
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
            throw SettingError("'" + word + "' gives no value: write name=value");
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
        throw SettingError(name + "=" + text + " is no number");
    }
    return value;
}

double
Settings::Number(const std::string& name, double otherwise, double least, double most)
{
    const auto text = Given(name);
    const double value = Number(name, otherwise);
    if (value < least || value > most)
    {
        Refuse(name, text, Written(least) + " to " + Written(most));
    }
    return value;
}

uint32_t
Settings::Whole(const std::string& name, uint32_t otherwise, double least, double most)
{
    return static_cast<uint32_t>(Number(name, otherwise, least, most));
}

double
Settings::NumberOrNone(const std::string& name, double least, double most)
{
    const auto text = Given(name);
    const double value = Number(name, 0);
    if (value != 0 && (value < least || value > most))
    {
        Refuse(name, text, "0, or " + Written(least) + " to " + Written(most));
    }
    return value;
}

void
Settings::Refuse(const std::string& name, const std::string& text, const std::string& may)
{
    throw SettingError(name + "=" + text + " cannot be: give " + may);
}

std::string
Settings::Given(const std::string& name) const
{
    const auto found = m_values.find(name);
    return found == m_values.end() ? "" : found->second;
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
        throw SettingError("a cell knows no '" + m_values.begin()->first + "'");
    }
}

} // namespace ns3
