"""Pure: why a Service is as it is on this node, from its objects to the elements in the kernel.

    endpoints.account_endpoints   every endpoint of every slice, and why it is used or not
    kernel.KernelService          what was found in the kernel, as values
    findings.findings_of          what is wrong, because of what, and what to do
    service.explain_service       all of it, with a verdict in the first line

The decisions are those of `translate`: the lists are chosen by its functions, and only the reasons are added here.
"""
