// Libraries that cohort must refuse without looking into them: of another version of Cohort, of another torch, and no plugin at all.
extern "C" {
#if defined(OTHER_VERSION)
const char* cohort_plugin_version() { return "0.0.1"; }
const char* cohort_plugin_torch() { return "2.0.0"; }
void cohort_plugin(void*) { __builtin_trap(); }
#elif defined(OTHER_TORCH)
const char* cohort_plugin_version() { return COHORT_VERSION; }
const char* cohort_plugin_torch() { return "2.0.0"; }
void cohort_plugin(void*) { __builtin_trap(); }
#else
int something_else() { return 1; }
#endif
}
