//! Effective configuration: built-in defaults, ConfigMaps, namespace lists and annotations, merged for each pod and policy.
