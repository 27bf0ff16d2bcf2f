// Context extension methods as a command line names them: a rotary scaling, a distance map, a query
// temperature, or several of these together.
//
//   method  = part { "+" part } [ "+all-layers" ]   ntk   rerope:256   yarn+self-extend   ntk+log-n
//   part    = name [ ":" setting { "," setting } ]  self-extend:window=512,group=8
//   setting = [ key "=" ] number                    without a key: the part's first
// Sliding-window layers with a base of their own (Gemma 3) see no more than their window at any
// length, and a scaling leaves them alone; with all-layers it is theirs too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// The parts that are no rotary scaling (scalings are in Methods(); their one setting is factor).
// Settings that are not given follow from the trained length, times the factor of the rotary part,
// and from the target length. `make` is null for a temperature.
using MethodPart = MapInfo;
// rerope, leaky-rerope, self-extend, dual-chunk, sinks, string, lampe, dpe, log-n, mscale.
const std::vector<MethodPart>& MethodParts();

inline constexpr char kAllLayers[] = "all-layers";

// "log-n(length 4096)", "mscale(factor 2)": of a temperature that TemperatureFor makes.
std::string DescribeMethodTemperature(const QueryTemperature& temperature);

class PositionMethod {
 public:
  PositionMethod();  // none
  // Throws Error(kInvalidArgument) that lists the names or the settings of a part.
  static PositionMethod Parse(const std::string& text);
  static std::optional<PositionMethod> TryParse(const std::string& text);  // empty: no method

  const std::string& name() const { return name_; }  // as parsed
  std::string title() const;                         // "NTK-aware + log-n"
  std::string source() const;
  bool is_none() const { return name_ == "none"; }
  bool length_dependent() const { return scaling_->length_dependent; }
  // Whether the plan depends on the factor.
  bool uses_factor() const;
  // A scaling without map and temperature, which a configuration file can express.
  bool only_scales() const { return map_.part == nullptr && temperature_.part == nullptr; }
  // Layers with a local base too.
  bool all_layers() const { return all_layers_; }

  // `factor` is target length over trained length. The rotary part gets all of it, with a map its
  // square root, or its own setting; the map extends from there to the target length.
  Scaling ScalingFor(double factor) const;
  std::optional<DistanceMap> MapFor(double factor, int64_t trained_length) const;
  std::optional<QueryTemperature> TemperatureFor(int64_t trained_length) const;

  // The plan with this method. Layers whose sliding window lies within the length that the rotation
  // covers get no map: they see no larger distances. trained_length > 0 replaces the plan's. Throws
  // Error, with the reason, where a part cannot be combined with the model or with another part, and
  // for all_layers() where no layer has a local base.
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
  bool scaling_given_ = false, all_layers_ = false;
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
