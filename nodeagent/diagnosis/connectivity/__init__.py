"""`nodeagent connectivity`: whether Services work in a cluster, whatever serves them there.

`cases` says what is tried from where and what must come of it, `judgement` compares, `matrix` prints: all pure. `objects` is
what is created in the cluster; `deployment` creates and deletes it, `rounds` runs the cases by `pod_program`, which is what runs
in the pods. Nothing here knows how Services are programmed.
"""
