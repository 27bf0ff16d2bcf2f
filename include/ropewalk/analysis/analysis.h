// Analysis of rotary frequencies without running a model: rotations of each pair within a length,
// angles that training did not reach, lower bounds of the base, decay of scores with distance and
// its smoothness.
// Pure functions from frequencies to plain structs.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

struct PairInfo {
  double frequency = 0;  // f, radians per position; 0: the pair is not rotated
  double wavelength_tokens = std::numeric_limits<double>::infinity();  // 2 pi / frequency
  double trained_rotations = 0;  // rotations within the trained length L: L f / 2 pi
  double target_rotations = 0;   // the same within the target length
  double unseen_share = 0;       // see UnseenShare
  int axis = 0;                  // of the position that rotates the pair
};

// One element per pair. `trained` are the frequencies of training (without a scaling that was added
// later), `now` those in use; lengths are in tokens. Throws Error where the two differ in their
// number of pairs, or a length is below 1.
std::vector<PairInfo> Pairs(const Frequencies& trained, int64_t trained_length,
                            const Frequencies& now, int64_t target_length);

// The frequencies of training: those of the spec without its extension. Scalings that extend a
// trained model (linear, NTK, by-parts, YaRN, llama3, LongRoPE, divisors) are removed; those that a
// model is trained with from the start (another base, HoPE, proportional) stay, with factor 1.
Frequencies TrainedFrequencies(const RotarySpec& spec);

// The number of distances, 0 .. Reach - 1, that the layers with this rotation (an index into
// plan.rotations) see: the largest over these layers of the plan's length, cut to the layer's
// sliding window or chunk.
int64_t Reach(const ResolvedPlan& plan, int rotation);

// The share of the distances 0 .. target_length - 1 at which the angle of a pair is one that no
// distance 0 .. trained_length - 1 has. In training the angles cover the arc [0, A], A = f (L - 1);
// where A is 2 pi or more they cover all angles and the share is 0. At the target length they cover
// T = f' (target_length - 1) radians, of which those outside [0, A] modulo 2 pi are new:
//   (floor(T / 2 pi) (2 pi - A) + max(0, T mod 2 pi - A)) / T.
// Angles count as continuous: the gaps between the angles of integer positions within [0, A]
// (Resonance RoPE, arXiv 2403.00071) count as seen. The measure follows section 3 of LongRoPE
// (arXiv 2402.13753) and "Scaling Laws of RoPE-based Extrapolation" (arXiv 2310.05209).
double UnseenShare(double trained_frequency, int64_t trained_length, double frequency,
                   int64_t target_length);

struct CriticalDimension {
  int64_t first_pair = 0;  // the first pair with less than one rotation within the length; the
                           // number of pairs where there is none
  int64_t dimension = 0;   // 2 first_pair: d_extra of arXiv 2310.05209, eq. 10 for plain RoPE
  int64_t incomplete_pairs = 0;  // how many pairs make less than one rotation
};
// The critical dimension of "Scaling Laws of RoPE-based Extrapolation" (Liu et al. 2023, arXiv
// 2310.05209): dimensions from d_extra = 2 ceil(d/2 log_b(L / 2 pi)) on make less than one rotation
// within the trained length L.
CriticalDimension Critical(const Frequencies& frequencies, int64_t length);

// Sum over pairs i of cos(distance * f_i), in double precision for distances below 2^31.
double CosineSum(const Frequencies& frequencies, int64_t distance);

// The longest context that these frequencies support: the largest L such that sum_i cos(m f_i) is
// not negative at any distance m = 0 .. L, or `limit`. "Base of RoPE Bounds Context Length" (Men et
// al. 2024, arXiv 2405.14591, section 4): only where the sum is not negative does a key similar to
// the query score higher on average than a random key at distance m.
int64_t LongestContext(const Frequencies& frequencies, int64_t limit = int64_t{1} << 22);

struct BaseBound {
  int64_t context = 0;  // tokens
  double base = 0;      // the smallest base found whose plain frequencies support the context
  double rounded = 0;   // rounded up for display: four digits, or as many as still support it
};
// Lower bounds of the base of plain RoPE for contexts 2^10, 2^11, ... below `context`, and for
// `context` itself (1 .. 2^22). The search multiplies the base by kBaseStep until LongestContext
// supports the context; a bound is right up to that factor, but an interval of supporting bases
// narrower than it may be missed. Not every base above the bound supports the context: intervals
// that do not follow above it, so that coarser searches (the paper's too) find larger values. Contexts
// that no base supports have no bound: with a rotary_dim of 2 all beyond 1 token, because the one
// frequency is 1 whatever the base.
inline constexpr double kBaseStep = 1.0001;
std::vector<BaseBound> BaseBounds(int64_t rotary_dim, int64_t context);

// The decay of scores with distance m.
struct DecayPoint {
  int64_t distance = 0;
  // (2/d) sum_{j=1}^{d/2} |S_j|, S_j = sum_{l<j} e^(i m f_l): figure 2 of RoFormer (arXiv
  // 2104.09864, section 3.4.3). By Abel summation |score| is at most max_l |h_{l+1} - h_l| times
  // the sum, where h_l is the product of pair l of query and key.
  double bound = 0;
  // (2/d) sum_l cos(m f_l): the mean score relative to that at distance 0, if all elements of q
  // and k are independent with the same nonzero mean. Without the attention factor, which
  // multiplies scores by its square.
  double expected = 0;
};
std::vector<DecayPoint> Decay(const Frequencies& frequencies,
                              const std::vector<int64_t>& distances);
// 0, 1, 2, 3, 4, 6, 8, ... up to `longest`: two per power of 2, and `longest` itself.
std::vector<int64_t> LogDistances(int64_t longest);

// The expected score of plain RoPE with ever more pairs: integral over t in [0, 1] of
// cos(m base^-t), which is (Ci(m) - Ci(m / base)) / ln base, and cos m where base is 1. The mean
// over h pairs is its left Riemann sum and follows it while neighbouring pairs differ by less than
// pi radians, up to m of about pi h / ln base. From 1 << m << base on it falls as
// (ln(base / m) - 0.5772) / ln base. (Su 2021, "Transformer upgrade 2", kexue.fm/archives/8265.)
// Within 1e-13 for distances of magnitude below 2^31; throws Error for a base below 1.
double DecayIntegral(double base, int64_t distance);

// How smooth the expected score C(m) of plain RoPE is over the distances m = 1 .. `longest`.
struct Smoothness {
  int64_t rotary_dim = 0;
  // The root of the mean square of C(m - 1) - 2 C(m) + C(m + 1).
  double roughness = 0;
  // C(m) less DecayIntegral: the root of the mean square, and the largest magnitude.
  double deviation = 0;
  double largest_deviation = 0;
};
// `longest`: 1 to 65536. Throws Error for what Resolve refuses and for other lengths.
Smoothness SmoothnessOf(double base, int64_t rotary_dim, int64_t longest);

}  // namespace ropewalk
