"""`nodeagent connectivity`: tests whether Services work in a cluster, with any proxy.

`cases` describes what is tried from where and what is expected, `judgement` compares, `matrix` prints: all pure.
`objects` has what is created in the cluster; `deployment` creates and deletes it, `rounds` runs the cases with
`pod_program`, which runs in the pods. Nothing here depends on how Services are programmed.
"""
