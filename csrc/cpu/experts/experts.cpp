// Choice of the variant of what is done row by row.
#include "experts/experts.h"

#include "common/cpu.h"
#include "experts/rows.h"

namespace core {

#define DECLARE(variant)                                  \
  namespace variant {                                     \
  void route(const core_route_args*);                     \
  void add_identities(const core_add_identities_args*);   \
  void sum_weighed(const experts::Weighed&);              \
  }
DECLARE(base)
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512_bf16)
#undef DECLARE

#define VARIANTS(f) \
  { f(base), CORE_AVX2(f(avx2)), CORE_AVX512(f(avx512)), CORE_AVX512_BF16(f(avx512_bf16)) }
#define ROUTE(variant) variant::route
#define ADD_IDENTITIES(variant) variant::add_identities
#define SUM_WEIGHED(variant) variant::sum_weighed

static const Variants<void(const core_route_args*)> kRoute = VARIANTS(ROUTE);
static const Variants<void(const core_add_identities_args*)> kAddIdentities = VARIANTS(ADD_IDENTITIES);
static const Variants<experts::SumWeighed> kSumWeighed = VARIANTS(SUM_WEIGHED);

namespace experts {
SumWeighed* sum_weighed() { return kSumWeighed.pick(); }
}  // namespace experts

}  // namespace core

CORE_API void core_cpu_route(const core_route_args* args) { core::kRoute.pick()(args); }
CORE_API void core_cpu_add_identities(const core_add_identities_args* args) { core::kAddIdentities.pick()(args); }
