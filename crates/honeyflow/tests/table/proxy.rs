//! A proxy between the node and the cluster. It forwards everything, or holds it back like a silent server: connections
//! stay open and get no answer.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

pub struct Proxy {
    port: u16,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let closed = self.closed.lock().expect("a gate");
        drop(self.changed.wait_while(closed, |closed| *closed).expect("a gate"));
    }

    fn set(&self, closed: bool) {
        *self.closed.lock().expect("a gate") = closed;
        self.changed.notify_all();
    }
}

impl Proxy {
    pub fn before(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let gate = Arc::new(Gate::default());
        let held = gate.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let gate = held.clone();
                    thread::spawn(move || forward(&gate, from, to));
                }
            }
        });
        Proxy { port, gate }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn hold(&self) {
        self.gate.set(true);
    }

    pub fn release(&self) {
        self.gate.set(false);
    }
}

fn forward(gate: &Gate, mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        gate.pass();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
