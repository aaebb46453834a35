// Go's net package: a goroutine a connection, the runtime's poller beneath.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
)

func serve(client net.Conn, messageBytes int) {
	defer client.Close()
	buffer := make([]byte, 4096)
	for {
		got, err := client.Read(buffer)
		piece := got
		if messageBytes > 0 {
			piece = messageBytes
		}
		for at := 0; at < got; at += piece {
			if _, err := client.Write(buffer[at:min(at+piece, got)]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		// As a buffered reader would: larger ones for who sends much.
		if got == len(buffer) && got < 64<<10 {
			buffer = make([]byte, 64<<10)
		}
	}
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func main() {
	threads := flag.Int("threads", 1, "GOMAXPROCS")
	messageBytes := flag.Int("message_bytes", 0,
		"0: a read is answered at once; else each message of this many")
	flag.Parse()
	runtime.GOMAXPROCS(*threads)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The lab keeps the other end open as long as it lives.
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Printf("ready %d\n", listener.Addr().(*net.TCPAddr).Port)
	for {
		client, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go serve(client, *messageBytes)
	}
}
