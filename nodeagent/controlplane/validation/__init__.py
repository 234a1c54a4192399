"""What Kubernetes accepts, kind by kind: functions from an object to a list of field errors. Pure.

Rules and wording follow pkg/apis/*/validation and k8s.io/apimachinery/pkg/util/validation; the order of the errors is theirs,
because clients see it.
"""
