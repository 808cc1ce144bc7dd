#include "cohort/observe/exporter.h"

#include <fmt/format.h>

#include <utility>

namespace cohort::observe {

HttpRoutes exporter_routes(const Registry& registry, std::string about) {
  return {{"/", [about = std::move(about)](
                    const HttpRequest&) { return HttpResponse{.body = fmt::format("{}\n\n/metrics  Prometheus text format\n", about)}; }},
          {"/metrics",
           [&registry](const HttpRequest&) { return HttpResponse{.type = std::string(kPrometheusType), .body = registry.text()}; }}};
}

}  // namespace cohort::observe
