// fmt's own code, compiled once: as headers only it is compiled into every file that formats, which took three
// quarters of a file's time, and nine tenths under sanitizers. Below are the templates that fmt 9 and 10 declare in
// fmt/format.h and define in fmt/format-inl.h; meson.build falls back to headers only for a version with others.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<format_context>, locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
