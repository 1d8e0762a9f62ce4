package shop;

public record Line(String sku, int quantity, double price) {}
