{{- define "labels" -}}
labels: {app.kubernetes.io/name: nodeagent}
{{- end }}

{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "environment" -}}
- name: NODEAGENT_NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- {name: NODEAGENT_PROCESS_MANAGE_SYSCTLS, value: "false"}
{{- end }}

{{- define "files" -}}
nodeagent.yaml: |
  {{- $header := dict "apiVersion" "nodeagent.io/v1alpha1" "kind" "NodeAgentConfiguration" }}
  {{- $source := dict "source" (dict "kubeconfig" "/etc/nodeagent/kubeconfig") }}
  {{- mergeOverwrite $header $source (deepCopy .Values.configuration) | toYaml | nindent 2 }}
kubeconfig: |
  apiVersion: v1
  kind: Config
  current-context: cluster
  clusters:
    - name: cluster
      cluster:
        server: {{ required "server: the address of the API server, such as https://192.0.2.10:6443, or kubeadm: true" .Values.server }}
        certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
  users:
    - name: pod
      user:
        tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
  contexts:
    - name: cluster
      context: {cluster: cluster, user: pod}
{{- end }}

{{- define "configMap" -}}
{{ if .Values.kubeadm }}kube-proxy{{ else }}nodeagent-{{ include "files" . | sha256sum | trunc 10 }}{{ end }}
{{- end }}
