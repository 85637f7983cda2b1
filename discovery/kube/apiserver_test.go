package kube

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// apiServer is a real kube-apiserver on an etcd in this process, with the custom resource's definition installed.
type apiServer struct {
	directory  string
	etcd       *embed.Etcd
	command    []string
	process    *exec.Cmd
	exited     chan struct{}
	admin      *rest.Config
	namespaces atomic.Int64
}

const adminToken = "test-administrator"

// startAPIServer starts the program; it takes some ten seconds.
func startAPIServer(binary string) (_ *apiServer, err error) {
	directory, err := os.MkdirTemp("", "kube-apiserver-")
	if err != nil {
		return nil, err
	}
	s := &apiServer{directory: directory}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := s.startEtcd(); err != nil {
		return nil, err
	}
	key, tokens := filepath.Join(directory, "service-account.key"), filepath.Join(directory, "tokens.csv")
	if err := errors.Join(writeKey(key), os.WriteFile(tokens, []byte(adminToken+",admin,1,system:masters\n"), 0o600)); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s.command = []string{
		binary, "--etcd-servers=" + s.etcd.Config().ListenClientUrls[0].String(), "--cert-dir=" + directory, "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port), "--token-auth-file=" + tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://127.0.0.1", "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none",
	}
	if err := s.startProcess(); err != nil {
		return nil, err
	}
	s.admin = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: adminToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
	}
	return s, s.prepare()
}

func (s *apiServer) startProcess() error {
	log, err := os.Create(filepath.Join(s.directory, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	process, exited := exec.Command(s.command[0], s.command[1:]...), make(chan struct{})
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		return err
	}
	s.process, s.exited = process, exited
	go func() {
		process.Wait()
		close(exited)
	}()
	return nil
}

// kill ends the server as a crash would. Its data stay in etcd.
func (s *apiServer) kill() {
	if s.process != nil {
		s.process.Process.Kill()
		<-s.exited
	}
}

func (s *apiServer) startEtcd() error {
	config := embed.NewConfig()
	config.Dir = filepath.Join(s.directory, "etcd")
	for _, urls := range []*[]url.URL{&config.ListenPeerUrls, &config.AdvertisePeerUrls, &config.ListenClientUrls, &config.AdvertiseClientUrls} {
		port, err := freePort()
		if err != nil {
			return err
		}
		*urls = []url.URL{{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}}
	}
	config.AdvertisePeerUrls, config.AdvertiseClientUrls = config.ListenPeerUrls, config.ListenClientUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.UnsafeNoFsync = true
	started, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	s.etcd = started
	select {
	case <-started.Server.ReadyNotify():
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("etcd does not start")
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600)
}

// prepare waits until the server answers, installs the resource's definition and waits until it is served.
func (s *apiServer) prepare() error {
	resources, err := dynamic.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	definition, err := manifests(filepath.Join("testdata", "crd.yaml"))
	if err != nil {
		return err
	}
	definitions := resources.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := s.eventually(func(ctx context.Context) error {
		_, err := definitions.Apply(ctx, definition[0].GetName(), definition[0], metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	}); err != nil {
		return fmt.Errorf("install the definition: %w", err)
	}
	return s.eventually(func(ctx context.Context) error {
		_, err := resources.Resource(metadataResource).Namespace("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

// eventually repeats an attempt until it works, the server has exited or two minutes have passed.
func (s *apiServer) eventually(attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-pause.C:
		case <-s.exited:
			log, _ := os.ReadFile(filepath.Join(s.directory, "log"))
			return fmt.Errorf("the server has exited:\n%s", log)
		case <-ctx.Done():
			return err
		}
	}
}

func (s *apiServer) stop() {
	s.kill()
	if s.etcd != nil {
		s.etcd.Close()
	}
	os.RemoveAll(s.directory)
}

// newCluster makes a namespace with a service account that has the rights of our manifest, and connects as that account.
func (s *apiServer) newCluster(t *testing.T) *cluster {
	t.Helper()
	namespace := fmt.Sprintf("test-%d", s.namespaces.Add(1))
	resources, err := dynamic.NewForConfig(s.admin)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if _, err := resources.Resource(namespaces).Create(t.Context(), untyped(t, object), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &cluster{resources: resources, namespace: namespace}
}

// manifests reads the documents of a YAML file.
func manifests(path string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var documents []*unstructured.Unstructured
	for text := range strings.SplitSeq(string(content), "\n---\n") {
		document := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(text), &document.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(document.Object) > 0 {
			documents = append(documents, document)
		}
	}
	return documents, nil
}
