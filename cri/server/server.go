// Package server serves the Container Runtime Interface on a socket. A sandbox is pinned namespaces and a cgroup, see
// package sandboxes; a container is a pod of one app in them, under its own stager. What the server knows is on disk
// (package records), so that it may be killed at any time: the containers run on, and the next server finds them.
package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"kurma.io/stager/cri/imageindex"
	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/launcher/sources"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// Server is both services of the CRI.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	config    Config
	version   string
	daemon    *daemon.Daemon
	images    *images.Store
	index     *imageindex.Index
	records   *records.Store
	pods      *pods.Store
	sandboxes *sandboxes.Maker
	streams   streaming.Server
	locks     locks
	events    subscribers
	ends      ends
	disk      diskUsages
	tally     tally
	memory    *sources.Memory // of pulls
	appArmor  sync.Once       // its warning
	ending    context.Context //nolint:containedctx // ends streams and attendants when the server ends
}

// MonitorCommand is the first argument of the process that watches the pod of a network plugin; the pod's folder
// follows.
const MonitorCommand = "monitor"

// HoldCommand is the argument of the main process of a network plugin's container, which waits until it is stopped.
const HoldCommand = "hold"

// StartCommand is the first argument of a process that becomes a container's stager, pods.Exec.
const StartCommand = "start"

// Monitor is the main function of the process of MonitorCommand, for the pod in that folder.
func Monitor(ctx context.Context, dir string) error {
	return pods.RunDetached(ctx, dir, nil, func(*pods.Pod) []pods.AppOutput { return nil })
}

// Run serves until ctx ends. Containers run on then.
func Run(ctx context.Context, config Config, version string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := listen(config.Socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	s, err := open(ctx, config, version)
	if err != nil {
		return err
	}
	s.attendAll()
	if err := s.obtainStager(ctx); err != nil {
		slog.Error("no container can be started", "error", err) // the status has it as well
	}
	left := s.findLeftovers(ctx)
	stopStreams, err := s.serveStreams()
	if err != nil {
		return err
	}
	defer stopStreams()
	stopMetrics, err := s.serveMetrics()
	if err != nil {
		return err
	}
	defer stopMetrics()
	server := newServer(s)
	go s.watch(ctx)
	go s.removeLeftovers(ctx, left) // beside serving: kubelet waits for the socket
	go s.removePulled(ctx)
	unhook := context.AfterFunc(ctx, server.Stop)
	defer unhook()
	slog.Info("serving", "socket", listener.Addr().String(), "version", version)
	return server.Serve(listener)
}

func newServer(s *Server) *grpc.Server {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(s.reportUnary), grpc.ChainStreamInterceptor(s.reportStream),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxCallHeaders), grpc.MaxConcurrentStreams(maxCalls))
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	return server
}

// Limits of a connection.
const (
	maxMessage     = 16 << 20 // bytes of a message, as kubelet's client takes them
	maxCallHeaders = 64 << 10 // bytes of a call's headers
	maxCalls       = 1000     // at a time; kubelet makes some for each pod that starts or stops
)

// openState makes the folder dir, if need be, and returns its absolute path without symbolic links: a host volume, as
// what is in it can be, has none.
func openState(dir string) (string, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return dir, err
}

func open(ctx context.Context, config Config, version string) (*Server, error) {
	var err error
	if config.State, err = openState(config.State); err != nil {
		return nil, err
	}
	store, err := records.Open(config.State)
	if err != nil {
		return nil, err
	}
	imageStore := images.Open(filepath.Join(config.State, "images"))
	podStore := pods.Open(filepath.Join(config.State, "pods"), "kurma")
	d, err := openNetworks(config, func() ([]string, error) { return sandboxes.Connected(store) })
	if err != nil {
		return nil, err
	}
	return &Server{
		config: config, version: version, daemon: d, images: imageStore, records: store, pods: podStore, ending: ctx,
		memory: sources.NewMemory(),
		index:  imageindex.Open(filepath.Join(config.State, "images.json")),
		sandboxes: &sandboxes.Maker{
			CNI: sandboxes.CNI{
				ConfigDir: config.NetworkConfigDirectory, PluginDirs: config.NetworkPluginDirectories,
			},
			Kurma: sandboxes.Kurma{
				Folder: config.ContainerNetworksDirectory, Networks: d.Networks(), Connector: d.Connector(),
			},
		},
	}, nil
}

// openNetworks opens the launcher's library with the sandboxes' networks.
func openNetworks(config Config, connected func() ([]string, error)) (*daemon.Daemon, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := config.daemon(nil)
	c.ContainerNetworksDirectory = cmp.Or(config.ContainerNetworksDirectory, c.ContainerNetworksDirectory)
	return daemon.Open(c, daemon.Options{
		Programs: daemon.Programs{Monitor: monitor(), Hold: self}, LivePods: connected,
	})
}

// obtainStager imports the stager if the configuration names a source of it, and checks that it is trusted.
func (s *Server) obtainStager(ctx context.Context) error {
	err := s.daemon.Obtain(ctx, daemon.PodOptions{Image: s.config.StagerImage})
	return err
}

// errInvalid says that a request is wrong.
var errInvalid = errors.New("invalid request")

// oneLine makes one line of the lines of joined errors: kubelet shows it to a person, as an event.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// report logs the error of a call, and gives it the code by which callers decide. That an ID is not known is no
// failure: kubelet asks for what it has just removed.
func report(method string, err error) error {
	if err == nil {
		return nil
	}
	level := slog.LevelError
	if _, ok := status.FromError(err); !ok {
		code := codes.Unknown
		switch {
		case errors.Is(err, records.ErrNotFound), errors.Is(err, images.ErrNotFound):
			code, level = codes.NotFound, slog.LevelDebug
		case errors.Is(err, errInvalid):
			code = codes.InvalidArgument
		case errors.Is(err, context.DeadlineExceeded):
			code = codes.DeadlineExceeded
		case errors.Is(err, context.Canceled):
			code = codes.Canceled
		}
		err = status.Error(code, oneLine(err))
	}
	slog.Log(context.Background(), level, "call failed", "method", filepath.Base(method), "error", err)
	return err
}

func (s *Server) reportUnary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (response any, err error) {
	begun := time.Now()
	defer func() {
		err = s.reported(info.FullMethod, contain(recover(), err))
		s.tally.took(filepath.Base(info.FullMethod), time.Since(begun))
	}()
	return next(ctx, request)
}

func (s *Server) reportStream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	defer func() { err = s.reported(info.FullMethod, contain(recover(), err)) }()
	return next(server, stream)
}

// reported reports and counts a call.
func (s *Server) reported(method string, err error) error {
	err = report(method, err)
	s.tally.call(filepath.Base(method), status.Code(err).String())
	return err
}

// contain returns the error of a call, or an error for its panic: the server has other calls, and a pod's author could
// end it again and again.
func contain(panicked any, err error) error {
	if panicked == nil {
		return err
	}
	slog.Error("call panicked", "value", panicked, "stack", string(debug.Stack()))
	return status.Errorf(codes.Internal, "defect of the server: %v", panicked)
}
