// What a job shows to scrapers: /metrics in Prometheus' format, / as a few lines for a person who opens the port in a browser.
//   HttpServer server(exporter_routes(registry, "cohort job demo, 4 ranks"));
// Threads, failure: http.h. The registry is borrowed until the server has gone.
#pragma once
#include <string>

#include "cohort/observe/http.h"
#include "cohort/observe/prometheus.h"

namespace cohort::observe {

HttpRoutes exporter_routes(const Registry& registry, std::string about);

}  // namespace cohort::observe
