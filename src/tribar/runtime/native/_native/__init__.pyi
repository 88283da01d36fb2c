from tribar.runtime.native._native import kernels as kernels
