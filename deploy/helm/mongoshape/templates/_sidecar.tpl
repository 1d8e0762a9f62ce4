{{- /*
For the chart of an application that depends on this one. The context of all three is `.Subcharts.mongoshape`:
`mongoshape.sidecar` is an item of initContainers, `mongoshape.sidecar.volumes` are items of volumes, and
`mongoshape.sidecar.annotations` are annotations of the pod.
*/ -}}
{{- define "mongoshape.sidecar" -}}
{{- include "mongoshape.checkUpstream" . -}}
{{- /* It starts before the application and ends after the application has ended. So it needs no preStop. */ -}}
{{- /* No probe of /readyz: while mongod is unavailable, it would remove the application's pod from its services. */ -}}
- {{ include "mongoshape.container" . | nindent 2 | trim }}
  restartPolicy: Always
  ports:
    - name: metrics
      containerPort: 9216
  {{- with .Values.sidecar.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "mongoshape.userSecurity" . | nindent 4 }}
    {{- include "mongoshape.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: mongoshape-config
      mountPath: /etc/mongoshape
      readOnly: true
    {{- if .Values.adminTls.existingSecret }}
    - name: mongoshape-admin-tls
      mountPath: /etc/mongoshape-admin-tls
      readOnly: true
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "mongoshape.sidecar.volumes" -}}
- name: mongoshape-config
  configMap:
    name: {{ include "mongoshape.fullname" . }}
{{- with .Values.adminTls.existingSecret }}
- name: mongoshape-admin-tls
  secret:
    secretName: {{ . | quote }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "mongoshape.sidecar.annotations" -}}
{{ include "mongoshape.checksum" . }}
{{- end }}
