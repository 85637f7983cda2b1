// Package deploy_test checks the manifests and the chart: that they render, and that a cluster would accept every field.
package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// decode reads YAML documents into the types that the API server uses; a field that those don't have is an error.
func decode(content string) (map[string]any, error) {
	objects := make(map[string]any)
	for document := range strings.SplitSeq("\n"+content, "\n---") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, err
		}
		var object any
		switch kind.APIVersion + " " + kind.Kind {
		case " ":
			continue
		case "v1 ServiceAccount":
			object = new(corev1.ServiceAccount)
		case "v1 Service":
			object = new(corev1.Service)
		case "apps/v1 Deployment":
			object = new(appsv1.Deployment)
		case "rbac.authorization.k8s.io/v1 Role":
			object = new(rbacv1.Role)
		case "rbac.authorization.k8s.io/v1 RoleBinding":
			object = new(rbacv1.RoleBinding)
		default:
			return nil, fmt.Errorf("unexpected object %+v", kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
		objects[kind.Kind] = object
	}
	return objects, nil
}

// check looks at what would keep the frontend from finding its workers, or clients from finding the frontend.
func check(t *testing.T, objects map[string]any) {
	t.Helper()
	for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding", "Deployment", "Service"} {
		if objects[kind] == nil {
			t.Fatalf("no %s", kind)
		}
	}
	account := objects["ServiceAccount"].(*corev1.ServiceAccount)
	binding := objects["RoleBinding"].(*rbacv1.RoleBinding)
	deployment := objects["Deployment"].(*appsv1.Deployment)
	service := objects["Service"].(*corev1.Service)
	if binding.RoleRef.Name != objects["Role"].(*rbacv1.Role).Name || binding.Subjects[0].Name != account.Name {
		t.Errorf("binding %+v does not join the role and the account", binding)
	}
	pod := deployment.Spec.Template
	if pod.Spec.ServiceAccountName != account.Name {
		t.Errorf("pods run as %q, not as %q", pod.Spec.ServiceAccountName, account.Name)
	}
	for label, value := range deployment.Spec.Selector.MatchLabels {
		if pod.Labels[label] != value || service.Spec.Selector[label] != value {
			t.Errorf("label %s=%s is not on the pods or not in the service's selector", label, value)
		}
	}
	if service.Labels["nvidia.com/dynamo-discovery-enabled"] != "true" {
		t.Error("the service lacks the label that makes the frontend's own records count")
	}
	container := pod.Spec.Containers[0]
	variables := make(map[string]corev1.EnvVar)
	for _, variable := range container.Env {
		variables[variable.Name] = variable
	}
	if variables["DYN_DISCOVERY_BACKEND"].Value != "kubernetes" {
		t.Error("discovery is not set to kubernetes")
	}
	for name, path := range map[string]string{"POD_NAME": "metadata.name", "POD_UID": "metadata.uid", "POD_NAMESPACE": "metadata.namespace"} {
		if source := variables[name].ValueFrom; source == nil || source.FieldRef == nil || source.FieldRef.FieldPath != path {
			t.Errorf("%s does not come from %s", name, path)
		}
	}
	if port := service.Spec.Ports[0].TargetPort.String(); port != container.Ports[0].Name {
		t.Errorf("the service sends to port %q, the container has %q", port, container.Ports[0].Name)
	}
}

func TestManifests(t *testing.T) {
	var all strings.Builder
	for _, name := range []string{"rbac.yaml", "frontend.yaml"} {
		content, err := os.ReadFile(filepath.Join("kubernetes", name))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("\n---\n" + string(content))
	}
	objects, err := decode(all.String())
	if err != nil {
		t.Fatal(err)
	}
	check(t, objects)
}

// helm runs helm and returns what it prints.
func helm(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	program := os.Getenv("SIGNALBOX_HELM")
	if program == "" {
		found, err := exec.LookPath("helm")
		if err != nil {
			t.Skip("helm is not here: install it, or set SIGNALBOX_HELM to the program")
		}
		program = found
	}
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestChart(t *testing.T) {
	if output, err := helm(t, "lint", "--strict", "helm/signalbox"); err != nil {
		t.Errorf("helm lint: %v\n%s", err, output)
	}
	for name, arguments := range map[string][]string{
		"defaults": nil,
		"everything": {
			"--set", "discoveryMode=container,routerMode=kv,service.name=vllm-agg-frontend,modelCache.existingClaim=models,huggingFace.tokenSecret=hf",
			"--set", "dynamoNamespacePrefix=vllm-agg,serviceAccount.name=router,replicaCount=2,extraArgs[0]=--router-temperature",
			"--set-string", "extraArgs[1]=0.5,extraEnv[0].name=DYN_LOG,extraEnv[0].value=debug,nodeSelector.zone=a,podLabels.team=x,podAnnotations.a=b",
			"--set", "imagePullSecrets[0].name=registry,tolerations[0].key=gpu,affinity.podAntiAffinity=null",
		},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := helm(t, append([]string{"template", "release", "helm/signalbox", "--namespace", "inference", "--kube-version", "1.31.0"}, arguments...)...)
			if err != nil {
				t.Fatalf("helm template: %v\n%s", err, output)
			}
			objects, err := decode(output)
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			check(t, objects)
			service := objects["Service"].(*corev1.Service)
			role := objects["Role"].(*rbacv1.Role)
			pod := objects["Deployment"].(*appsv1.Deployment).Spec.Template.Spec
			readiness := "endpointslices"
			if name == "everything" {
				readiness = "pods"
				if service.Name != "vllm-agg-frontend" {
					t.Errorf("service %q does not take the frontend's place", service.Name)
				}
				if args := pod.Containers[0].Args; len(args) != 3 || args[2] != "0.5" {
					t.Errorf("arguments %q", args)
				}
				if len(pod.Volumes) != 2 || pod.Volumes[1].PersistentVolumeClaim.ClaimName != "models" {
					t.Errorf("volumes %+v", pod.Volumes)
				}
			}
			if role.Rules[1].Resources[0] != readiness {
				t.Errorf("rights on %v; want %s", role.Rules[1].Resources, readiness)
			}
		})
	}
	for _, wrong := range []string{"discoveryMode=node", "routerMode=fastest", "replicas=2", "service.port=0"} {
		if output, err := helm(t, "template", "release", "helm/signalbox", "--kube-version", "1.31.0", "--set", wrong); err == nil {
			t.Errorf("%s was accepted:\n%s", wrong, output)
		}
	}
}
