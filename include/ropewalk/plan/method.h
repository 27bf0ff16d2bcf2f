// What a command line calls a method of extension: a rotary scaling, a distance map, a temperature,
// or several of them at once.
//
//   method  = part { "+" part }                     ntk   rerope:256   yarn+self-extend   ntk+log-n
//   part    = name [ ":" setting { "," setting } ]  self-extend:window=512,group=8
//   setting = [ key "=" ] number                    without a key: the part's first
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// The parts that are no rotary scaling (those are Methods(), whose one setting is factor). What is
// not set follows from the length K that the rotation knows and the target length T.
// `make` is null for a temperature.
using MethodPart = MapInfo;
// rerope, leaky-rerope, self-extend, dual-chunk, sinks, log-n.
const std::vector<MethodPart>& MethodParts();

class PositionMethod {
 public:
  PositionMethod();  // none
  // Throws Error(kInvalidArgument) that lists the names or the settings of a part.
  static PositionMethod Parse(const std::string& text);
  static std::optional<PositionMethod> TryParse(const std::string& text);  // empty: no method

  const std::string& name() const { return name_; }  // as given
  std::string title() const;                         // "NTK-aware + log-n"
  std::string source() const;
  bool is_none() const { return name_ == "none"; }
  bool length_dependent() const { return scaling_->length_dependent; }
  // Whether another factor gives another plan.
  bool uses_factor() const;
  // No map and no temperature: what a configuration file can say.
  bool only_scales() const { return map_.part == nullptr && temperature_.part == nullptr; }

  // Of `factor`, target length over trained length, the rotary part takes all, or with a map its
  // square root, or what its own setting says; the map goes from there to the target.
  Scaling ScalingFor(double factor) const;
  std::optional<DistanceMap> MapFor(double factor, int64_t trained_length) const;
  std::optional<QueryTemperature> TemperatureFor(int64_t trained_length) const;

  // The plan under this method. Layers whose window is within what the rotation knows keep it; they
  // never see farther. trained_length > 0 replaces the plan's. Throws Error, with the reason, where
  // a part does not go with the model or with another part.
  PositionPlan Apply(const PositionPlan& plan, double factor, int64_t trained_length = 0) const;
  // "ntk(factor 4) + log-n(length 256)"
  std::string Describe(double factor, int64_t trained_length) const;

 private:
  struct Chosen {
    const MethodPart* part = nullptr;
    std::map<std::string, int64_t> settings = {};
  };
  void AddPart(const std::string& text);
  int64_t Known(double factor, int64_t trained_length) const;

  std::string name_ = "none";
  const MethodInfo* scaling_;  // none where no part is a scaling
  bool scaling_given_ = false;
  std::optional<double> scaling_factor_;
  Chosen map_, temperature_;
};

// A plan that no method makes from the model's: the model's own, or that of a rope dictionary.
struct FixedPlan {
  std::string name;             // "as-shipped"; "yarn(factor 4)" for a dictionary
  PositionPlan plan = {};       // the same at every length
  std::string dictionary = {};  // as it was given; empty: as shipped
};
inline constexpr char kAsShipped[] = "as-shipped";

}  // namespace ropewalk
