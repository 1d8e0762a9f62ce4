//! The library that tests, the demo and the benchmarks share: a real mongod, the real proxy.
